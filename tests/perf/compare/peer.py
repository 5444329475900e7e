# SPDX-License-Identifier: Apache-2.0
"""One peer on one row, alive until stdin ends; the commands are those of worker.c.

    peer.py PEER ROW PRECISION THREADS FOLDER

PEER: onnxruntime, openvino, ctranslate2, llama.cpp with perhaps a type of its files. Models are those that prepare.py
wrote into FOLDER.
"""
import os
import sys
import time

PEER, ROW, PRECISION, THREADS, FOLDER = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
os.environ["OMP_NUM_THREADS"] = str(THREADS)
sys.stdout, STDOUT = sys.stderr, sys.stdout

import numpy as np

import rows
import seeded

CT2_TYPE = {"f32": "float32", "bf16": "bfloat16", "int8": "int8_float32"}.get(PRECISION)

clock = time.perf_counter


def place(name):
    """A file of the folder."""
    return os.path.join(FOLDER, name)


class Call:
    """A row that is one call: run() does it, result() gives its output."""

    def __init__(self, row):
        self.row = row

    def times(self, seconds):
        """Times of calls, for n seconds."""
        found, end = [], clock() + seconds
        while not found or clock() < end:
            before = clock()
            self.run()
            found.append(clock() - before)
        return found

    def output(self):
        """The result of one call as an array."""
        self.run()
        return np.asarray(self.result(), np.float32)


class OnnxRuntime(Call):
    """ONNX Runtime with bound buffers, all graph optimizations."""

    def __init__(self, row):
        super().__init__(row)
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        suffix = ".int8.onnx" if PRECISION == "int8" else ".onnx"
        self.session = ort.InferenceSession(place(row.name + suffix), options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.binding.bind_cpu_input("input", call_input(row))
        shape = [1, row.length, rows.MODELS[row.model].hidden]
        self.value = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
        self.binding.bind_ortvalue_output("output", self.value)

    def run(self):
        """One inference."""
        self.session.run_with_iobinding(self.binding)

    def result(self):
        """The bound output."""
        return self.value.numpy()


class OpenVino(Call):
    """OpenVINO, latency hint; int8: weights of 8 bits and activations quantized in groups of 32 as they come."""

    def __init__(self, row):
        super().__init__(row)
        import openvino
        core = openvino.Core()
        model = core.read_model(place(row.name + ".onnx"))
        if PRECISION == "int8":
            import nncf
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        model = core.compile_model(model, "CPU", {
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32 if PRECISION == "int8" else 0,
            "INFERENCE_PRECISION_HINT": "bf16" if PRECISION == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY", "ENABLE_CPU_PINNING": False})
        self.request = model.create_infer_request()
        self.input = call_input(row)  # kept: the tensor shares its memory
        self.request.set_input_tensor(openvino.Tensor(self.input, shared_memory=True))

    def run(self):
        """One inference."""
        self.request.infer(share_inputs=True, share_outputs=True)

    def result(self):
        """The output tensor."""
        return self.request.get_output_tensor(0).data


class Ct2Encoder(Call):
    """CTranslate2's encoder."""

    def __init__(self, row):
        super().__init__(row)
        import ctranslate2
        self.model = ctranslate2.Encoder(place(row.model + ".ct2"), device="cpu", compute_type=CT2_TYPE,
                                         inter_threads=1, intra_threads=THREADS)
        self.ids = ctranslate2.StorageView.from_array(call_input(row).astype(np.int32))
        self.lengths = ctranslate2.StorageView.from_array(np.full((1,), row.length, np.int32))
        self.value = None

    def run(self):
        """One inference."""
        self.value = self.model.forward_batch(self.ids, self.lengths)

    def result(self):
        """The last hidden state."""
        return np.array(self.value.last_hidden_state)


class Ct2Prefill(Call):
    """CTranslate2 reads a prompt and gives one token."""

    def __init__(self, row):
        super().__init__(row)
        self.model = ct2_generator(row)
        self.prompt = [f"t{i}" for i in seeded.ids(row)]
        self.value = None

    def run(self):
        """One token behind the prompt."""
        self.value = self.model.generate_batch(
            [self.prompt], beam_size=1, max_length=1, min_length=1, include_prompt_in_result=False, end_token="t2",
            return_logits_vocab=True)

    def result(self):
        """Its logits."""
        return np.array(self.value[0].logits[0][0])


class Ct2Decode:
    """CTranslate2 generates greedily; a callback stamps every token. The prompt's state is kept between calls."""

    def __init__(self, row):
        import ctranslate2
        self.row, self.stamps, self.until = row, [], float("inf")
        words = [f"t{i}" for i in seeded.ids(row)]
        self.is_seq2seq = rows.MODELS[row.model].kind == "seq2seq"
        self.more = {"beam_size": 1, "end_token": "t2", "suppress_sequences": [["t2"]], "callback": self.stamp}
        if self.is_seq2seq:
            self.model = ctranslate2.Translator(place(row.model + ".ct2"), device="cpu", compute_type=CT2_TYPE,
                                                inter_threads=1, intra_threads=THREADS)
            self.words = words
        else:
            self.model = ct2_generator(row)
            self.words = words[-1:]
            self.more |= {"include_prompt_in_result": False}
            if len(words) > 1:
                self.more |= {"static_prompt": words[:-1], "cache_static_prompt": True}

    def stamp(self, _):
        """Called for every token; true ends the generation, which has a time when there are two."""
        self.stamps.append(clock())
        return len(self.stamps) > 1 and self.stamps[-1] > self.until

    def generate(self):
        """The ids of one generation."""
        n = self.row.steps
        self.stamps = []
        if self.is_seq2seq:
            result = self.model.translate_batch([self.words], max_decoding_length=n, min_decoding_length=n, **self.more)
            return [int(t[1:]) for t in result[0].hypotheses[0]]
        result = self.model.generate_batch([self.words], max_length=n, min_length=n, **self.more)
        return result[0].sequences_ids[0]

    def times(self, seconds):
        """Times of the tokens behind the first one."""
        found, self.until = [], clock() + seconds
        while not found or clock() < self.until:
            self.generate()
            found += [b - a for a, b in zip(self.stamps, self.stamps[1:])]
        self.until = float("inf")
        return found

    def output(self):
        """The ids of one generation."""
        return np.array(self.generate(), np.int32)


class Llama:
    """llama.cpp by its C interface: a prompt's last logits, or greedy tokens behind it."""

    def __init__(self, row):
        import gguf_models

        llama_cpp = gguf_models.quiet_llama()
        self.row, self.api = row, llama_cpp
        llama_cpp.llama_backend_init()
        model = rows.MODELS[row.model]
        path = gguf_models.path_of(model, FOLDER, gguf_models.kind_of(PEER, PRECISION))
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = model.ctx
        parameters.n_threads = parameters.n_threads_batch = THREADS
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)
        self.memory, self.vocab = llama_cpp.llama_get_memory(self.context), model.vocab
        self.prompt = [int(i) for i in seeded.ids(row)]

    def logits(self, ids):
        """Behind ids that are appended."""
        tokens = (self.api.llama_token * len(ids))(*ids)
        if self.api.llama_decode(self.context, self.api.llama_batch_get_one(tokens, len(ids))):
            raise RuntimeError("llama_decode failed")
        return np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, -1), (self.vocab,))

    def trim(self, n):
        """Only the first n tokens stay."""
        self.api.llama_memory_seq_rm(self.memory, 0, n, -1)

    def prefill(self):
        """The whole prompt."""
        self.trim(0)
        return self.logits(self.prompt)

    def tokens(self):
        """(id, seconds) of a greedy generation; the prompt's time is left out."""
        token = int(np.argmax(self.prefill()))
        for _ in range(self.row.steps):
            before = clock()
            following = int(np.argmax(self.logits([token])))
            yield token, clock() - before
            token = following

    def times(self, seconds):
        """Times of prompts or tokens, for n seconds."""
        found, end = [], clock() + seconds
        while not found or clock() < end:
            if self.row.mode == "prefill":
                before = clock()
                self.prefill()
                found.append(clock() - before)
            else:
                found += [t for _, t in self.tokens()]
        return found

    def output(self):
        """The last logits, or the ids."""
        if self.row.mode == "prefill":
            return np.array(self.prefill(), np.float32)
        return np.array([i for i, _ in self.tokens()], np.int32)


def ct2_generator(row):
    """CTranslate2's causal decoder."""
    import ctranslate2
    return ctranslate2.Generator(place(row.model + ".ct2"), device="cpu", compute_type=CT2_TYPE, inter_threads=1,
                                 intra_threads=THREADS)


def call_input(row):
    """The input of a call: ids [1, length], or patches."""
    return seeded.patches() if rows.MODELS[row.model].kind == "vit" else seeded.ids(row)[None]


def open_peer(row):
    """The object that does the row."""
    if PEER == "onnxruntime":
        return OnnxRuntime(row)
    if PEER == "openvino":
        return OpenVino(row)
    if PEER.startswith("llama.cpp"):
        return Llama(row)
    return {"run": Ct2Encoder, "prefill": Ct2Prefill, "decode": Ct2Decode}[row.mode](row)


def answer(text):
    """One line for the measuring process."""
    print(text, file=STDOUT, flush=True)


def main():
    """Serves commands."""
    peer = open_peer((rows.ROWS | rows.FILES)[ROW])
    answer("ready")
    for line in sys.stdin:
        command, argument = line.split(None, 1)
        if command == "slice":
            peer.times(float(argument) / 8)
            answer("times " + " ".join(f"{t:.9g}" for t in peer.times(float(argument))))
        elif command == "output":
            peer.output().tofile(argument.strip())
            answer("ok")


main()
