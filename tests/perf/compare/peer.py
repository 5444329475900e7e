# SPDX-License-Identifier: Apache-2.0
"""One peer on one row, alive until stdin ends; the commands are those of worker.c.

    peer.py PEER ROW THREADS FOLDER

PEER: onnxruntime, openvino, ctranslate2. Models are those that prepare.py wrote into FOLDER.
"""
import os
import sys
import time

PEER, ROW, THREADS, FOLDER = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
os.environ["OMP_NUM_THREADS"] = str(THREADS)
sys.stdout, STDOUT = sys.stderr, sys.stdout

import numpy as np

import rows
import seeded

clock = time.perf_counter


def place(name):
    """A file of the folder."""
    return os.path.join(FOLDER, name)


class Call:
    """A row that is one call: run() does it, result() gives its output."""

    def __init__(self, row):
        self.row = row

    def times(self, seconds):
        """Times of calls, for so many seconds."""
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
        self.session = ort.InferenceSession(place(row.name + ".onnx"), options, providers=["CPUExecutionProvider"])
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
    """OpenVINO, latency hint, f32."""

    def __init__(self, row):
        super().__init__(row)
        import openvino
        core = openvino.Core()
        model = core.compile_model(core.read_model(place(row.name + ".onnx")), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1,
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
        self.model = ctranslate2.Encoder(place(row.model + ".ct2"), device="cpu", compute_type="float32",
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
            self.model = ctranslate2.Translator(place(row.model + ".ct2"), device="cpu", compute_type="float32",
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


def ct2_generator(row):
    """CTranslate2's causal decoder."""
    import ctranslate2
    return ctranslate2.Generator(place(row.model + ".ct2"), device="cpu", compute_type="float32", inter_threads=1,
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
    return {"run": Ct2Encoder, "prefill": Ct2Prefill, "decode": Ct2Decode}[row.mode](row)


def answer(text):
    """One line for the measuring process."""
    print(text, file=STDOUT, flush=True)


def main():
    """Serves commands."""
    peer = open_peer(rows.ROWS[ROW])
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
