#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Weights in files of torch.save, new and old, in one file and in shards, contiguous and strided, alone and in a checkpoint,
# give the bits of the safetensors file they were made from: as a hub folder, imported, and named by a model file.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
support=$TFMC_SOURCE/tests/support
python3 "$support/make_llama.py" "$tmp/m" llama
cd "$tmp/m"
"$TFMC" run . --inputs inputs.safetensors --outputs a.safetensors -O0
mkdir ../t
mv model.safetensors ../
cp config.json ../t
convert() { python3 -B "$support/to_torch.py" "$tmp/model.safetensors" "$@"; }
same() { # WHAT MODEL: its outputs are those of the safetensors file
	"$TFMC" run "$2" --inputs inputs.safetensors --outputs b.safetensors -O0
	cmp a.safetensors b.safetensors || { echo "$1: other results" >&2; exit 1; }
}

for options in "" --protocol=3 --protocol=4 --old --strided "--old --strided" --zip64 --under=state_dict \
	--under=model "--under=model_state_dict --protocol=4"; do
	convert ../t/pytorch_model.bin $options
	same "a folder, $options" ../t
done
"$TFMC" import ../t -o ../t/imported.yaml
grep -c "files: \[pytorch_model.bin\]" ../t/imported.yaml >/dev/null
same "an imported folder" ../t/imported.yaml
mv ../t/pytorch_model.bin ../t/mine.pt
printf 'tfmc: 1\nname: m\nhf: config.json\nweights: {files: [mine.pt]}\n' >../t/mine.yaml
same "a model file" ../t/mine.yaml
if "$TFMC" ../t -o ../x.o 2>../err; then echo "a folder with mine.pt alone is taken" >&2; exit 1; fi
grep -c "by another name than pytorch_model.bin ('mine.pt')" ../err >/dev/null
rm ../t/mine.*

convert ../t --shards=3
same "shards" ../t
# safetensors are read before pickles
cp ../model.safetensors ../t
echo nonsense >../t/pytorch_model.bin.index.json
same "a folder with both" ../t
echo "files of torch.save give the bits of safetensors"
