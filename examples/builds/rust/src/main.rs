// SPDX-License-Identifier: Apache-2.0
//! Translates dates with the compiled model: `cargo run -- 3/3/21`.
use std::ffi::{c_char, c_int, CStr, CString};

#[repr(C)]
struct Session {
    _opaque: [u8; 0],
}

extern "C" {
    fn dates_open(out: *mut *mut Session) -> c_int;
    fn tfmc_generate_text(session: *mut Session, prompt: *const c_char, out: *mut c_char, cap: u64) -> c_int;
    fn tfmc_session_close(session: *mut Session);
    fn tfmc_rt_status_text(status: c_int) -> *const c_char;
}

struct Model(*mut Session);

fn checked(status: c_int) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(tfmc_rt_status_text(status)) }.to_string_lossy().into_owned()),
    }
}

impl Model {
    fn open() -> Result<Model, String> {
        let mut session = std::ptr::null_mut();
        checked(unsafe { dates_open(&mut session) })?;
        Ok(Model(session))
    }

    fn translate(&mut self, text: &str) -> Result<String, String> {
        let prompt = CString::new(text).map_err(|e| e.to_string())?;
        let mut out = [0u8; 64];
        checked(unsafe { tfmc_generate_text(self.0, prompt.as_ptr(), out.as_mut_ptr().cast(), out.len() as u64) })?;
        Ok(CStr::from_bytes_until_nul(&out).map_err(|e| e.to_string())?.to_string_lossy().into_owned())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { tfmc_session_close(self.0) }
    }
}

fn main() -> Result<(), String> {
    let mut model = Model::open()?;
    for text in std::env::args().skip(1) {
        println!("{text:<28} -> {}", model.translate(&text)?);
    }
    Ok(())
}
