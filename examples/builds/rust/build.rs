// SPDX-License-Identifier: Apache-2.0
//! Compiles the model and the C side of the program, and links both with the library that pkg-config finds.
use std::{env, path::Path, process::Command};

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let (object, session) = (format!("{out}/dates.o"), format!("{out}/session.o"));
    let model = Path::new("../../dates/model.yaml");
    let rule = format!("{out}/dates.d");
    run(Command::new("tfmc").arg(model).args(["-q", "-o", &object, "-MD", "-MF", &rule]));

    let flags = run(Command::new("pkg-config").args(["--cflags", "--libs", "tfmc"]));
    let (libraries, includes): (Vec<_>, Vec<_>) =
        flags.split_whitespace().partition(|f| f.starts_with("-L") || f.starts_with("-l"));
    let compiler = env::var("CC").unwrap_or("cc".into());
    run(Command::new(compiler).args(["-std=c17", "-O2", "-c", "session.c", "-o", &session, "-I", &out]).args(includes));

    for word in [object.as_str(), session.as_str()].into_iter().chain(libraries) {
        println!("cargo:rustc-link-arg={word}");
    }
    println!("cargo:rustc-link-arg=-lm");
    // The rule for make names all files that the model was made from.
    let read = std::fs::read_to_string(rule).unwrap();
    for file in read.split_once(": ").map_or("", |r| r.1).split_whitespace().filter(|w| *w != "\\") {
        println!("cargo:rerun-if-changed={}", file.trim_end_matches(':'));
    }
    for file in ["build.rs", "session.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
}
