#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A model whose weights are larger than the addresses that a process may have runs on four ranks, each with the weights
# of its own rank; one process cannot map them. The weights of each rank are packed with less memory than they have. The
# text is that of four ranks that are threads without a limit. With TFMC_ALL twice the size, for MPICH, too: MPI_Init
# takes 180 MB of addresses in Open MPI, 460 in MPICH.
set -euo pipefail
skip() { echo "SKIPPED: $*" >&2; exit 77; }
command -v mpicc.openmpi mpirun.openmpi >/dev/null && [ -e "$TFMC_BUILD/runtime/mpi/libtfmcmpi-openmpi.a" ] || skip "no Open MPI"
[ -z "${TFMC_LINK_FLAGS:-}" ] || skip "sanitizers reserve more addresses than the limit"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_CC=$CC MPICH_CC=$CC
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ "$(df -k --output=avail "$tmp" | tail -1)" -gt 4000000 ] || skip "less than 4 GB in $tmp"
cd "$tmp"
fail() { cat log >&2; echo "$*" >&2; exit 1; }
layers=4 addresses=352 mpis=openmpi # MB
[ -z "${TFMC_ALL:-}" ] || layers=8 addresses=752 mpis="openmpi mpich"
mkdir folder session
cp "$TFMC_SOURCE"/examples/hub/tales/tokenizer* folder
python3 - "$TFMC_SOURCE/examples/hub/tales/config.json" $layers <<'P'
import array, json, random, struct, sys
config = json.load(open(sys.argv[1]))
layers, width, heads, keys, inner = int(sys.argv[2]), 1024, 16, 4, 16384
config.update(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=keys,
              head_dim=width // heads, intermediate_size=inner)
json.dump(config, open("folder/config.json", "w"))
matrices = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (width // 4, width), "self_attn.v_proj": (width // 4, width),
            "self_attn.o_proj": (width, width), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner)}
shapes = {"model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,)}
for i in range(layers):
    for norm in "input_layernorm", "post_attention_layernorm":
        shapes[f"model.layers.{i}.{norm}.weight"] = (width,)
    for name, shape in matrices.items():
        shapes[f"model.layers.{i}.{name}.weight"] = shape
size = lambda shape: 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
at, header = 0, {}
for name, shape in shapes.items():
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size(shape)]}
    at += size(shape)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
# Values in +-1/32, a table of prime length that repeats; each tensor begins at another place of it.
draw, prime = random.Random(1), 65521
table = array.array("H", (draw.randrange(0x3c00, 0x3d00) | draw.randrange(2) << 15 for _ in range(prime))).tobytes() * 2
ones = array.array("H", [0x3f80] * width).tobytes()
with open("folder/model.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    for shape in shapes.values():
        left, begin = size(shape), 2 * draw.randrange(prime)
        while left > 0:
            part = ones if len(shape) == 1 else table[begin:begin + min(left, 2 * prime)]
            out.write(part)
            left -= len(part)
P
whole=$(($(stat -c %s folder/model.safetensors) / 1000000))
words=(folder --name=model --shards=4 -q -o model.o)
# The limit on data counts private memory, not mappings of files.
for rank in 0 1 2 3; do (ulimit -d 98304; "$TFMC" "${words[@]}" --rank=$rank); done
part=$(($(stat -c %s model.3.weights) / 1000000))
[ $part -gt 100 ] && [ $((4 * part)) -gt $whole ] || fail "the weights of a rank have $part MB"
"$TFMC" generate folder --shards=4 --prompt "Once there was" --max-tokens=40 --threads=1 --progress=never >expected
"$TFMC" folder --name=model -q -o one.o
limited() { (ulimit -v $((addresses * 1024)); "$@"); }
link() { # MPI OBJECT PROGRAM
	mpicc.$1 -std=c17 -I. -I"$TFMC_SOURCE"/runtime{,/mpi,/tokenizer} "$TFMC_SOURCE/examples/ranks/main.c" $2 \
		"$TFMC_BUILD"/runtime/{mpi/libtfmcmpi-$1,libtfmcrt,tokenizer/libtfmctok}.a -lpthread -lm -o $3
}
echo "ulimit -v $((addresses * 1024)); exec \"\$@\"" >limited.sh
for mpi in $mpis; do
	command -v mpicc.$mpi mpirun.$mpi >/dev/null && [ -e "$TFMC_BUILD/runtime/mpi/libtfmcmpi-$mpi.a" ] || { echo "SKIPPED: $mpi is absent" >&2; continue; }
	case $mpi in
	openmpi) run=(mpirun.openmpi --oversubscribe --mca orte_tmpdir_base "$tmp/session") ;;
	mpich) run=(mpirun.mpich) ;;
	esac
	link $mpi model.o four
	timeout 300 "${run[@]}" -n 4 bash limited.sh ./four "Once there was" >text 2>log || fail "$mpi: four ranks end with $?"
	cmp text expected || fail "$mpi: four ranks tell something else"
	link $mpi one.o one
	timeout 300 "${run[@]}" -n 1 ./one "Once there was" >text 2>log || fail "$mpi: one process ends with $?"
	if timeout 300 "${run[@]}" -n 1 bash limited.sh ./one "Once there was" >text 2>log; then fail "$mpi: the limit does not bind"; fi
	grep -q 'ranks: session: ' log || fail "$mpi: one process says nothing of its weights"
	echo "$mpi: $whole MB of weights on 4 ranks, of at most $addresses MB of addresses each"
done
