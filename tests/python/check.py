# SPDX-License-Identifier: Apache-2.0
"""
check.py: the Python package against the command, which TFMC names: the same numbers bit for bit, errors with places,
threads, Ctrl-C, memory. Every function whose name begins with test_ is a test. Arguments: names of tests.
"""
import gc
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref

import numpy as np

import tfmc

SOURCE = os.environ["TFMC_SOURCE"]
EXAMPLES = os.path.join(SOURCE, "examples")
QUICK = os.environ.get("QUICK", "").split()  # of tests/support/effort.sh
FOLDER = tempfile.mkdtemp(prefix="tfmc-check-")
models: dict = {}


def compiled(name):
    """An example, compiled once."""
    path = {"tales": "hub/tales"}.get(name, name + "/model.yaml")
    if name not in models:
        models[name] = tfmc.compile(os.path.join(EXAMPLES, path), options=QUICK)
    return models[name]


def command(*words, code=0):
    done = subprocess.run([os.environ["TFMC"], *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return done.stdout


def path_of(name):
    return os.path.join(EXAMPLES, "hub/tales" if name == "tales" else name + "/model.yaml")


def raises(kind, of, call, *arguments, **named):
    """call(..) raises the kind of exception, with the text `of` in it."""
    try:
        call(*arguments, **named)
    except kind as e:
        assert of in str(e), (of, str(e))
        return e
    raise AssertionError(f"{call} raises no {kind.__name__}")


def llama(folder, **settings):
    """A small Llama of random weights, whose settings of generation_config.json are `settings`."""
    subprocess.run([sys.executable, os.path.join(SOURCE, "tests/support/make_llama.py"), folder, "llama",
                    "max_position_embeddings=65536"], check=True)
    if settings:
        import json
        with open(os.path.join(folder, "generation_config.json"), "w") as f:
            json.dump(settings, f)
    return folder


# ---- numbers ----

def test_run_as_the_command():
    for name, inputs in {"embed": {"ids": [[1, 2, 3], [4, 5, 6]], "lengths": [3, 2]}, "tales": {"input_ids": [[5, 6, 7, 8]]},
                         "dates": {"src": [[3, 4, 5]], "tgt": [[1, 2]]}, "classify": None}.items():
        model = compiled(name)
        if inputs is None:
            (pixels,) = model.inputs.values()
            shape = [int(s) if s.isdigit() else 2 for s in pixels.shape]
            given = {pixels.name: np.arange(np.prod(shape), dtype=pixels.dtype).reshape(shape)
                     if pixels.dtype.kind in "iu" else np.linspace(-1, 1, int(np.prod(shape))).astype(pixels.dtype).reshape(shape)}
        else:
            given = {n: np.array(v, model.inputs[n].dtype) for n, v in inputs.items()}
        found = model.run(given)
        wanted = run_command(path_of(name), given)
        assert found.keys() == wanted.keys()
        for n in found:
            assert found[n].dtype == wanted[n].dtype and found[n].shape == wanted[n].shape, (name, n)
            assert found[n].tobytes() == wanted[n].tobytes(), (name, n)


def run_command(path, given):
    """Outputs of `tfmc run`, by safetensors files."""
    import json
    names = {"float32": "F32", "int32": "I32", "int64": "I64", "uint8": "U8"}
    head, data = {}, b""
    for n, a in given.items():
        head[n] = {"dtype": names[str(a.dtype)], "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(FOLDER + "/in.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
    command("run", path, *QUICK, "--inputs", FOLDER + "/in.safetensors", "--outputs", FOLDER + "/out.safetensors")
    with open(FOLDER + "/out.safetensors", "rb") as f:
        all_ = f.read()
    n = int.from_bytes(all_[:8], "little")
    head, data = json.loads(all_[8:8 + n]), all_[8 + n:]
    types = {v: k for k, v in names.items()}
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], types[v["dtype"]]).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__"}


def generated(model, path, prompt, words, **named):
    found = model.generate(prompt, **named)
    pieces = list(found)
    wanted = command("generate", path, *QUICK, "--prompt", prompt, *words)
    assert "".join(pieces) + "\n" == wanted, (prompt, words, pieces, wanted)
    ids = command("generate", path, *QUICK, "--prompt", prompt, *words, "--print-tokens").split()
    assert found.tokens == [int(i) for i in ids], (found.tokens, ids)
    return pieces, found


def test_generate_as_the_command():
    tales, names, dates = compiled("tales"), compiled("names"), compiled("dates")
    pieces, found = generated(tales, path_of("tales"), "Zoë was a frog", ["--max-tokens=20"], max_tokens=20)
    assert len(pieces) > 5 and found.finish == "length" and len(found.log_p) == 20
    sampling = {"max_tokens": 30, "temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "seed": 3}
    words = [f"--{k.replace('_', '-')}={v}" for k, v in sampling.items()]
    generated(tales, path_of("tales"), "Once", words, **sampling)
    generated(tales, path_of("tales"), "Once", ["--max-tokens=40", "--stop=the", "--min-tokens=2"], max_tokens=40,
              stop="the", min_tokens=2)
    generated(tales, path_of("tales"), "Once", ["--max-tokens=9", "--suppress=269,325", "--bad-words=cat"], max_tokens=9,
              suppress=[269, 325], bad_words=["cat"])
    generated(names, path_of("names"), "ma", [])  # samples, as its file says
    generated(names, path_of("names"), "", ["--seed=7"], seed=7)
    generated(names, path_of("names"), "ma", ["--temperature=0"], temperature=0)
    generated(dates, path_of("dates"), "the 3rd of March, 2021", [])
    generated(dates, path_of("dates"), "3/3/21", ["--beam=4", "--length-penalty=0.6"], beam=4, length_penalty=0.6)
    generated(dates, path_of("dates"), "3/3/21", ["--stop=-"], stop="-")
    assert str(dates.generate("3/3/21")) == "2021-03-03"


def adapter(name, layer):
    """A LoRA adapter of random numbers for the queries of one layer of tales."""
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder)
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        f.write('{"peft_type": "LORA", "r": 2, "lora_alpha": 32}')
    q = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
    subprocess.run([sys.executable, os.path.join(EXAMPLES, "manual/draw.py"), os.path.join(folder, "adapter_model.safetensors"),
                    f"{q}.lora_A.weight:2x96", f"{q}.lora_B.weight:96x2"], check=True)
    return folder


def test_adapters():
    path, folders, ids = path_of("tales"), [adapter("first", 0), adapter("second", 1)], {"input_ids": [[5, 6, 7, 8]]}
    logits = [compiled("tales").run(**ids)["logits"]]
    for given in folders[:1], folders:
        model = tfmc.compile(path, adapters=given, options=QUICK)
        words = [f"--adapter={folder}" for folder in given]
        generated(model, path, "Zoë was a frog", ["--max-tokens=8", *words], max_tokens=8)
        logits.append(model.run(**ids)["logits"])
        assert all(np.abs(logits[-1] - before).max() > 1e-3 for before in logits[:-1])
    raises(tfmc.Error, "adapter_config.json", tfmc.compile, path, adapters=[FOLDER])


def test_settings_of_the_file():
    """Those of generation_config.json hold, and arguments go before them."""
    folder = llama(FOLDER + "/settings", repetition_penalty=1.7, no_repeat_ngram_size=2, max_new_tokens=12, min_new_tokens=3,
                   bad_words_ids=[[17], [3, 4]], sequence_bias=[[[11], 2.5], [[9, 8], -1.25]],
                   exponential_decay_length_penalty=[2, 1.1], forced_eos_token_id=2, num_beams=1)
    model = tfmc.compile(folder, options=QUICK)
    for named in {}, {"repetition_penalty": 1.0}, {"max_tokens": 5}, {"beam": 3}, {"temperature": 1.5, "seed": 5}:
        found = model.generate([1, 5, 9], **named)
        words = [f"--{k.replace('_', '-')}={v}" for k, v in named.items()]
        wanted = command("generate", folder, *QUICK, "--tokens=1,5,9", "--print-tokens", *words)
        assert str(found) == wanted.rstrip("\n"), (named, str(found), wanted)


def test_score_as_the_command():
    names, dates = compiled("names"), compiled("dates")
    for score, words in ((names.score("maren"), [path_of("names"), "--prompt=maren"]),
                         (dates.score("3/3/21", "2021-03-03"), [path_of("dates"), "--prompt=3/3/21", "--target-text=2021-03-03"]),
                         (dates.score("3/3/21", [6, 4, 2]), [path_of("dates"), "--prompt=3/3/21", "--target-tokens=6,4,2"])):
        *rows, last = command("score", *words, *QUICK).splitlines()
        assert [int(r.split("\t")[0]) for r in rows] == score.tokens.tolist()
        assert [f"{p:.6f}" for p in score.log_p] == [r.split("\t")[-1] for r in rows]
        assert last == f"log p {score.total:.6f}, {score.counted} tokens, perplexity {score.perplexity:.4f}"
    raises(TypeError, "target", dates.score, "3/3/21")
    raises(TypeError, "target", names.score, "ma", "ren")


def test_text():
    tales = compiled("tales")
    for text in "Zoë was a frog", "", "tab\tand\nline":
        ids = command("tokenize", path_of("tales"), "--prompt", text).split()
        assert tales.tokenize(text) == [int(i) for i in ids], text
    assert tales.detokenize(tales.tokenize("Zoë was a frog")) == "Zoë was a frog"
    raises(tfmc.Error, "no tokenizer", compiled("embed").tokenize, "x")


def test_embed():
    embed = compiled("embed")
    rows = [[1, 2, 3], [4, 5], [6], [7, 8, 9, 10]] * 20
    found = embed.embed(rows)
    assert found.shape == (80, 48)
    for i in 0, 1, 2, 3, 79:
        assert found[i].tobytes() == embed.run(ids=[rows[i]])["embedding"][0].tobytes()
    assert embed.embed([]).shape[0] == 0
    raises(TypeError, "output", compiled("tales").embed, ["Once"])


def test_attention_and_plan():
    dates = compiled("dates")
    maps = dates.attention("3/3/21", "2021-03-03")
    assert sorted({p.split(".")[0] for p in maps}) == ["decoder", "encoder"]
    for path, a in maps.items():
        assert a.dtype == np.float32 and a.ndim == 3 and np.allclose(a.sum(-1), 1, atol=1e-5), path
    assert list(dates.attention([3, 4, 5], heads=[1], layers=[0], attentions="cross")) == ["decoder.layers.0.cross"]
    text = command("plan", path_of("dates"), *QUICK)
    plan = dates.plan()
    assert f"weights      {plan.weights} bytes" in text
    assert f"state        {plan.state_fixed} + {plan.state_for_each_sequence} x sequences" in text
    small = dates.plan(B=1, S=4, T=2)
    assert small.arena < plan.arena and 0 < small.flops["run"] < plan.flops["run"]
    raises(ValueError, "Q", dates.plan, Q=1)
    raises(ValueError, "S", dates.plan, S=1000)


# ---- arrays ----

def test_no_copies():
    """The model reads and writes the memory of the arrays; DLPack shares it."""
    embed = compiled("embed")
    ids = np.array([[1, 2, 3]], np.int32)
    found = embed.run(ids=ids)["embedding"]
    seen = tfmc._model.ffi.cast("uint64_t", embed._idle[-1].calls[(None, "ids", ((1, 3), ids.dtype))].slots[0].data)
    assert int(seen) == ids.ctypes.data

    class Elsewhere:  # an array of another library
        def __dlpack__(self, **how):
            return ids.__dlpack__(**how)

        def __dlpack_device__(self):
            return ids.__dlpack_device__()

    shared = embed._convert({"ids": Elsewhere()})["ids"]
    assert shared.ctypes.data == ids.ctypes.data
    assert embed.run(ids=Elsewhere())["embedding"].tobytes() == found.tobytes()
    assert np.from_dlpack(found).ctypes.data == found.ctypes.data
    wide = np.array([[1, 9, 2, 9, 3, 9]], np.int32)[:, ::2]  # not contiguous: copied
    fortran = np.asfortranarray(np.array([[1, 2, 3], [1, 2, 3]], np.int32))
    assert embed.run(ids=wide)["embedding"].tobytes() == found.tobytes()
    assert embed.run(ids=fortran)["embedding"][1].tobytes() == found.tobytes()
    assert embed.run({"ids": [[1, 2, 3]]}, ["embedding"], lengths=None)["embedding"].tobytes() == found.tobytes()
    try:
        import torch
    except ImportError:
        print("  without torch")
        return
    tensor = torch.tensor([[1, 2, 3]], dtype=torch.int32)
    assert embed._convert({"ids": tensor})["ids"].ctypes.data == tensor.data_ptr()
    assert torch.from_dlpack(embed.run(ids=tensor)["embedding"]).numpy().tobytes() == found.tobytes()


def test_wrong_arguments():
    embed, names = compiled("embed"), compiled("names")
    ids = np.array([[1, 2, 3]], np.int32)
    raises(TypeError, "idz: there is no such input; known: ids, lengths", embed.run, idz=ids)
    raises(TypeError, "ids: the input ids: int32[B, S] is missing", embed.run)
    raises(TypeError, "ids: the array is int64", embed.run, ids=ids.astype(np.int64))
    raises(TypeError, "ids: float64 values", embed.run, ids=[[1.5]])
    raises(ValueError, "ids: a value is outside", embed.run, ids=[[1 << 40]])
    raises(ValueError, "ids: the array has 1 axes", embed.run, ids=ids[0])
    raises(ValueError, "S is 99, the model takes 1 to 20", embed.run, ids=np.zeros((1, 99), np.int32))
    raises(ValueError, "lengths: axis 0 is 2, not B = 1", embed.run, ids=ids, lengths=np.array([1, 2], np.int32))
    raises(ValueError, "outputs: there is no output 'x'", embed.run, {"ids": ids}, ["x"])
    raises(tfmc.Error, "a token id is outside", embed.run, ids=[[1000]])
    raises(ValueError, "temperature", names.generate, "m", temperature=-1)
    raises(TypeError, "max_tokens", names.generate, "m", max_tokens=1.5)
    raises(ValueError, "beam", names.generate, "m", beam=100)
    raises(ValueError, "stop", names.generate, "m", stop="")
    raises(tfmc.Error, "generate", embed.generate, "m")
    raises(tfmc.Error, "id", lambda: str(names.generate([100000])))
    assert embed.run(ids=ids)["embedding"].shape == (1, 48)


def test_errors_have_places():
    e = raises(tfmc.Error, "<yaml>:4:", tfmc.compile, "tfmc: 1\nname: x\ninputs: {a: {shape: [2], dtype: f32}}\nmodel: [foo: 1]\n"
               "outputs: {y: x}\n")
    assert e.file == "<yaml>" and e.line == 4 and e.column > 1 and e.code.startswith("E") and e.diagnostics and e.status == 1
    e = raises(tfmc.Error, "nowhere", tfmc.compile, FOLDER + "/nowhere")
    assert e.code == "E701" and e.line is None
    e = raises(tfmc.Error, "int5", tfmc.compile, path_of("embed"), quantize="int5")
    assert [f for f in os.listdir(".") if f.startswith(".tfmc-")] == []
    raises(ValueError, "dims", tfmc.compile, path_of("embed"), dims={"Q": 3}, options=QUICK)
    for damage in b"", b"\x7fELF", None:
        with open(FOLDER + "/bad.o", "wb") as f:
            f.write(damage if damage is not None else open(os.environ["TFMC"], "rb").read(5000))
        raises(tfmc.Error, "bad.o", tfmc.load, FOLDER + "/bad.o")
    raises(tfmc.Error, "absent.o", tfmc.load, FOLDER + "/absent.o")


def test_section_alignment():
    """The image of an object is aligned as the system's pages are, and no more can be asked for."""
    path, bad = FOLDER + "/embed.o", FOLDER + "/aligned.o"
    command("compile", path_of("embed"), "-o", path, "--weights=file", "-q", *QUICK)
    with open(path, "rb") as f:
        good = f.read()
    page, tables, n = os.sysconf("SC_PAGESIZE"), int.from_bytes(good[40:48], "little"), int.from_bytes(good[60:62], "little")
    headers = [range(tables + 64 * i, tables + 64 * i + 64) for i in range(n)]
    code = next(h for h in headers if good[h[4]] == 1 and good[h[8]] & 4 and any(good[i] for i in h[32:40]))  # code, not empty
    for align in page, 2 * page, 3:
        changed = bytearray(good)
        changed[code[48]:code[48] + 8] = align.to_bytes(8, "little")
        with open(bad, "wb") as f:
            f.write(changed)
        if align == page:
            tfmc.load(bad, weights=FOLDER + "/embed.weights")
        else:
            raises(tfmc.Error, "aligned.o", tfmc.load, bad, weights=FOLDER + "/embed.weights")


def test_damaged_objects():
    """An object with bytes of its headers, symbols and relocations changed is refused or loads; it is not run."""
    path, bad = FOLDER + "/embed.o", FOLDER + "/bad.o"
    command("compile", path_of("embed"), "-o", path, "--weights=file", "-q", *QUICK)
    with open(path, "rb") as f:
        good = f.read()
    tables = int.from_bytes(good[40:48], "little")
    refused, random = 0, np.random.default_rng(1)
    places = [*range(0, 64), *range(tables, len(good)), *random.integers(0, len(good), 200)]
    code = ("import sys, tfmc._library as t\n"
            "for line in sys.stdin:\n"
            "    model, out = t.ffi.new('struct tfmc_model *'), t.ffi.new('struct tfmc_object **')\n"
            f"    status = t.lib.tfmc_object_open({bad!r}.encode(), model, out)\n"
            "    t.lib.tfmc_object_close(out[0])\n"
            "    print(status, flush=True)\n")
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for place in places:
        changed = bytearray(good)
        changed[place] = (changed[place] + 1 + int(random.integers(255))) % 256
        with open(bad, "wb") as f:
            f.write(changed)
        child.stdin.write("\n")
        child.stdin.flush()
        status = child.stdout.readline()
        assert status, f"the loader ends with byte {place} changed"
        refused += status != "0\n"
    child.stdin.close()
    assert child.wait() == 0 and refused > 50, refused


def test_load():
    """What compile(output=..) keeps: an object with its weights inside, or beside it."""
    for words in [], ["--weights=file"]:
        tfmc.compile(path_of("names"), output=FOLDER + "/kept.o", options=[*QUICK, *words])
        with tfmc.load(FOLDER + "/kept.o") as model:
            assert str(model.generate("ma", temperature=0)) == str(compiled("names").generate("ma", temperature=0))
            raises(tfmc.Error, "attention", model.attention, "ma")
    os.rename(FOLDER + "/kept.weights", FOLDER + "/other.weights")
    raises(tfmc.Error, "kept.weights", tfmc.load, FOLDER + "/kept.o")
    assert tfmc.load(FOLDER + "/kept.o", weights=FOLDER + "/other.weights").generates == "causal"


def test_yaml_text():
    with open(path_of("names")) as f:
        text = f.read()
    before = os.getcwd()
    os.chdir(os.path.dirname(path_of("names")))
    try:
        model = tfmc.compile(text, options=QUICK)
        assert str(model.generate("ma", seed=1)) == str(compiled("names").generate("ma", seed=1))
    finally:
        os.chdir(before)


def test_onnx():
    """A file of ONNX with bounds for its sizes, as the command reads it."""
    path = os.path.join(FOLDER, "cached.onnx")
    subprocess.run([sys.executable, os.path.join(SOURCE, "tests/onnx/make_cached.py"), path, "--mask=padded"], check=True)
    model = tfmc.compile(path, bounds={"batch": (1, 4), "seq": (1, 16)}, options=QUICK)
    words = [path, "--dim=batch=1..4", "--dim=seq=1..16", *QUICK, "--tokens=1,2,3"]
    assert model.dims == {"batch": (1, 4), "seq": (1, 16)}
    made = model.generate([1, 2, 3])
    list(made)
    assert [int(i) for i in command("generate", *words).split()] == made.tokens
    assert [m.shape for m in model.attention([1, 2, 3]).values()] == [(2, 3, 3)]
    one = tfmc.compile(path, bounds={"batch": 2, "seq": 16, "past": 3}, options=QUICK)
    assert one.inputs["ids"].shape == ("2", "16")
    raises(tfmc.Error, "has no bounds", tfmc.compile, path, options=QUICK)


def test_dims_and_params():
    model = tfmc.compile(path_of("embed"), dims={"B": 2, "S": 5}, params={"longest": 10}, options=QUICK)
    assert model.dims["S"] == (1, 10)
    model.run(ids=np.zeros((2, 5), np.int32))
    raises(ValueError, "S is 6", model.run, ids=np.zeros((1, 6), np.int32))
    for n in range(1, 21):  # sessions grow with the calls
        compiled("embed").run(ids=np.ones((1, n), np.int32))
    assert len(compiled("embed")._idle) == 1


# ---- threads, signals, memory ----

def test_threads():
    """Calls of several threads have the results of one; one that computes does not stop another."""
    embed, tales = compiled("embed"), compiled("tales")
    rows = [np.array([[i + 1, i + 2, i + 3]], np.int32) for i in range(8)]
    wanted = [embed.run(ids=r)["embedding"].tobytes() for r in rows]
    text, wrong = str(tales.generate("Once", max_tokens=20)), []

    def work(i):
        for _ in range(50):
            if embed.run(ids=rows[i])["embedding"].tobytes() != wanted[i]:
                wrong.append(i)
        if str(tales.generate("Once", max_tokens=20)) != text:
            wrong.append(text)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    # The lock is free during a call: another thread counts meanwhile. With the lock held it would count once at most.
    model = tfmc.compile(llama(FOLDER + "/locked"), options=QUICK, threads=1)
    ids, counted, stop = np.ones((1, 2048), np.int32), [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    name = next(n for n, t in model.inputs.items() if t.limit)
    model.run({name: ids})
    thread = threading.Thread(target=count)
    thread.start()
    time.sleep(0.05)
    before = counted[0]
    model.run({name: ids})
    during = counted[0] - before
    stop.set()
    thread.join()
    assert during > 10, during


def interrupted(model, use):
    """KeyboardInterrupt in `use`, soon after the signal; the seconds that it took."""
    sent = []

    def send():
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        use()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        thread.join()
    raise AssertionError("no KeyboardInterrupt")


def test_interrupt():
    model = tfmc.compile(llama(FOLDER + "/long"), options=QUICK)
    found = model.generate([1, 5, 9], max_tokens=60000, ignore_stop=True)
    seconds = interrupted(model, lambda: str(found))
    assert found.finish == "closed" and len(found.tokens) < 60000
    long = np.ones(60000, np.int32)
    seconds = max(seconds, interrupted(model, lambda: model.score(long)))
    assert seconds < 20, seconds  # "soon" on a busy machine
    # The model is usable, and an iterator that is dropped or closed ends, too.
    with model.generate([1, 5, 9], max_tokens=60000, ignore_stop=True) as g:
        first = list(itertools.islice(g, 3))
    assert len(first) == 3 and g.finish == "closed" and list(g) == []
    g = model.generate([1, 5, 9], max_tokens=60000, ignore_stop=True)
    next(g)
    gone = weakref.ref(g)
    del g
    gc.collect()
    assert gone() is None
    until = time.monotonic() + 60
    while threading.active_count() > 1:  # the last steps of a thread
        assert time.monotonic() < until, threading.enumerate()
        time.sleep(0.01)
    assert str(model.generate([1, 5, 9], max_tokens=3)).split()[:1] == [first[0]]


def test_ends_while_generating():
    """A program that ends with an iterator unread: no hang, no crash."""
    code = (f"import tfmc; m = tfmc.load({FOLDER + '/ends.o'!r}); g = m.generate([1, 5, 9], max_tokens=60000, ignore_stop=True)\n"
            "print(next(g))")
    command("compile", llama(FOLDER + "/ends"), "-o", FOLDER + "/ends.o", "-q", *QUICK)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_no_leak():
    """10^4 calls of run, and generations, scores and models by the hundred, take no memory that stays."""
    embed, names = compiled("embed"), compiled("names")
    ids = [np.ones((1, n), np.int32) for n in range(1, 21)]

    def calls(n):
        for i in range(n):
            embed.run(ids=ids[i % 20])
        for _ in range(n // 50):
            str(names.generate("ma", max_tokens=4))
            names.score("maren")
        for _ in range(n // 200):
            tfmc.load(FOLDER + "/leak.o").run(ids=ids[3])
        gc.collect()

    command("compile", path_of("embed"), "-o", FOLDER + "/leak.o", "--weights=file", "-q", *QUICK)
    calls(2000)
    before = resident()
    calls(10000)
    grown = resident() - before
    assert grown < 2 << 20, f"{grown} bytes after 10^4 calls"


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started this program ignores
    tests = {n: f for n, f in globals().items() if n.startswith("test_")}
    for name in sys.argv[1:] or tests:
        begin = time.monotonic()
        tests[name]()
        print(f"{name} {time.monotonic() - begin:.1f} s", flush=True)


main()
