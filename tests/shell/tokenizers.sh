#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tokenizers of whole models: text into generate and score, ids of known texts with the vocabularies of GPT-2 and
# BERT in GGUF files, a tokenizer that an object carries, files of a hub folder.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
stories=$TFMC_SHARED/models/stories260k pairs=$TFMC_SHARED/data/tokenizers
[ -d "$stories" ] && [ -d "$pairs" ] || { echo "SKIPPED: the shared models are absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
same() { [ "$1" = "$2" ] || { printf 'wanted: %s\ngot:    %s\n' "$2" "$1"; exit 1; }; }

# Text in, text out; ids give the same text.
text=$("$TFMC" generate "${quick[@]}" "$stories/model.yaml" --prompt "" --max-tokens 24)
same "${text:0:39}" "Once upon a time, there was a little gi"
ids=$("$TFMC" tokenize "$stories/model.yaml" --prompt "Once upon a time")
same "$ids" "403 407 261 378"
same "$("$TFMC" generate "${quick[@]}" "$stories/model.yaml" --prompt "Once upon a time" --max-tokens 20)" \
	"$("$TFMC" generate "${quick[@]}" "$stories/model.yaml" --tokens "1 $ids" --max-tokens 20)"
same "$("$TFMC" tokenize "$stories/model.yaml" --tokens "$ids")" "Once upon a time"
same "$("$TFMC" generate "${quick[@]}" "$stories/model.yaml" --prompt "Once upon" --max-tokens 40 --stop ", there")" " a time"
"$TFMC" score "${quick[@]}" "$stories/model.yaml" --prompt "Once upon a time" | grep -c '^407	" upon"	-' >/dev/null

# Known texts of others, with the vocabularies in GGUF files.
sed '/^tokenizer:/d' "$stories/model.yaml" >"$tmp/model.yaml"
ln -s "$stories"/*.safetensors "$tmp"
for name in gpt-2 bert-bge; do
	ln -sf "$pairs/ggml-vocab-$name.gguf" "$tmp/v.gguf"
	{ cat "$tmp/model.yaml"; echo "tokenizer: {kind: gguf, file: v.gguf}"; } >"$tmp/$name.yaml"
	python3 - "$TFMC" "$tmp/$name.yaml" "$pairs/ggml-vocab-$name.gguf" <<'END'
import subprocess, sys
tfmc, model, base = sys.argv[1:]
texts = open(base + ".inp", newline="").read().split("\n__ggml_vocab_test__\n")
wanted = open(base + ".out").read().split("\n")
for text, line in zip(texts, wanted):
    got = subprocess.run([tfmc, "tokenize", model, "--prompt", text], capture_output=True, text=True, check=True).stdout.split()
    got = got[1:-1] if "bert" in base else got  # [CLS] .. [SEP]
    if got != line.split():
        sys.exit(f"{text!r}: wanted {line}, got {got}")
print(len(wanted), "texts of", base)
END
done

# An object carries its tokenizer; its file is the same.
"$TFMC" "${quick[@]}" "$stories/model.yaml" -o "$tmp/stories.o"
"$TFMC" tokenize "$stories/model.yaml" -o "$tmp/stories.tok"
cat >"$tmp/main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "tfmc_rt.h"
#include "tfmc_tokenizer.h"
#include "stories.h"

static int print(void *user, const char *text, uint64_t bytes)
{
	return fwrite(text, 1, bytes, user) != bytes;
}

static int show(struct tfmc_tokenizer *t)
{
	static const char text[] = "Once upon a t\xc3\xafme";
	struct tfmc_token_stream s;
	int32_t ids[32];
	uint64_t n;
	if (tfmc_tokenizer_encode(t, text, strlen(text), TFMC_TOKENIZE_SPECIAL, ids, 32, &n) || n > 32)
		return 1;
	tfmc_token_stream_begin(&s, t, 0, print, stdout);
	for (uint64_t i = 0; i < n; i++)
		if (tfmc_token_stream_add(&s, ids[i]))
			return 1;
	printf(" %d\n", (int)n);
	return tfmc_token_stream_end(&s);
}

int main(int argc, char **argv)
{
	struct tfmc_tokenizer *carried, *file;
	uint64_t bytes;
	struct tfmc_model model = stories260k_model();
	const void *packed = tfmc_record_tokenizer(model.record, &bytes);
	if (argc < 2 || tfmc_tokenizer_open(packed, bytes, &carried) || tfmc_tokenizer_open_file(argv[1], &file))
		return 1;
	int status = show(carried) || show(file);
	tfmc_tokenizer_close(carried);
	tfmc_tokenizer_close(file);
	return status;
}
END
# shellcheck disable=SC2086
"$CC" -std=c17 -I"$TFMC_SOURCE/runtime" -I"$TFMC_SOURCE/runtime/tokenizer" -I"$tmp" "$tmp/main.c" "$tmp/stories.o" \
	"$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/tokenizer/libtfmctok.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/show"
same "$("$tmp/show" "$tmp/stories.tok")" "$(printf 'Once upon a tïme 8\nOnce upon a tïme 8')"

# A hub folder brings its tokenizer; one that is refused is named with its place, and ids still work.
cp -rL "$TFMC_SHARED/models/gpt2-tiny" "$tmp/hub"
chmod -R u+w "$tmp/hub"
cp "$TFMC_SOURCE/tests/golden/tokenizers/gpt2.json" "$tmp/hub/tokenizer.json"
"$TFMC" import "$tmp/hub" | grep -c '^tokenizer: {file: tokenizer.json, class: GPT2Tokenizer, embed: true, optional: true}$' >/dev/null
[ -n "$("$TFMC" tokenize "$tmp/hub" --prompt "the compiler's text")" ]
sed -i 's/"pre_tokenizer":{"type":"ByteLevel"/"pre_tokenizer":{"type":"Odd"/' "$tmp/hub/tokenizer.json"
odd="pre_tokenizer: not supported yet: a component of type 'Odd'"
for command in "tokenize $tmp/hub --prompt x" "generate $tmp/hub --prompt x" "score $tmp/hub --prompt x"; do
	code=0
	# shellcheck disable=SC2086
	"$TFMC" $command 2>"$tmp/err" || code=$?
	same "$code" 1
	grep -c "error: .*$odd" "$tmp/err" >/dev/null
done
"$TFMC" "${quick[@]}" "$tmp/hub" -o "$tmp/odd.o" 2>"$tmp/err"
grep -c "warning: .*$odd; without its tokenizer the model takes ids alone" "$tmp/err" >/dev/null
same "$("$TFMC" generate "${quick[@]}" "$tmp/hub" --tokens 1,2,3 --max-tokens 4 2>/dev/null)" "$("$TFMC" generate "${quick[@]}" "$tmp/hub" --tokens 1,2,3 --max-tokens 4 --print-tokens)"
# A model file that asks for the tokenizer gets it or an error.
"$TFMC" import "$tmp/hub" | sed 's/, optional: true//' >"$tmp/hub/model.yaml"
code=0
"$TFMC" "${quick[@]}" "$tmp/hub/model.yaml" -o "$tmp/never.o" 2>"$tmp/err" || code=$?
same "$code" 1
grep -c "error: .*$odd" "$tmp/err" >/dev/null
[ ! -e "$tmp/never.o" ]

# An encoder carries its tokenizer as well.
cp -rL "$TFMC_SHARED/models/bert-tiny" "$tmp/encoder"
chmod -R u+w "$tmp/encoder"
cp "$TFMC_SOURCE/tests/golden/tokenizers/bert.json" "$tmp/encoder/tokenizer.json"
"$TFMC" "${quick[@]}" "$tmp/encoder" -o "$tmp/encoder.o"
LC_ALL=C grep -c TFMCTOK1 "$tmp/encoder.o" >/dev/null

# Text in a page about attention; each label is the text of its token.
"$TFMC" attend "$stories/model.yaml" -O0 --prompt "Once upon a time" --html="$tmp/attend.html"
grep -c '"ids":\[1,403,407,261,378\],"tokens":\["[^"]*"," Once"," upon"," a"," time"\]' "$tmp/attend.html" >/dev/null

# llama2.c's own file has the same vocabulary.
cp "$TFMC_SHARED/data/stories260k/tok512.bin" "$tmp/tok512.bin"
{ cat "$tmp/model.yaml"; echo "tokenizer: {kind: llama2c, file: tok512.bin}"; } >"$tmp/llama2c.yaml"
for text in "Once upon a time" "  Two  blanks" "naïve 中 🙂" "a" "The cat's
end"; do
	same "$("$TFMC" tokenize "$tmp/llama2c.yaml" --prompt "$text")" "$("$TFMC" tokenize "$stories/model.yaml" --prompt "$text")"
done

# Marian: each side has its own pieces, ids are those of vocab.json; the object carries both.
cp -rL "$TFMC_SHARED/models/variants/marian" "$tmp/opus"
chmod -R u+w "$tmp/opus"
cp "$TFMC_SOURCE"/tests/golden/tokenizers/marian/{source.spm,target.spm} "$tmp/opus"
python3 -c 'import json, sys; v = json.load(open(sys.argv[1])); json.dump({k: i for k, i in v.items() if i < 96}, open(sys.argv[2], "w"))' \
	"$TFMC_SOURCE/tests/golden/tokenizers/marian/vocab.json" "$tmp/opus/vocab.json" # as many as the model has
"$TFMC" import "$tmp/opus" | grep -c '^tokenizer: {kind: marian, source: source.spm, target: target.spm, vocab: vocab.json, embed: true, optional: true}$' >/dev/null
source=$("$TFMC" tokenize "$tmp/opus" --prompt "nobody reads")
target=$("$TFMC" tokenize "$tmp/opus" --target-text "nobody reads")
[ "${source##* }" = 0 ] # </s>
same "${source% 0}" "$target" # without most pieces
ids=$("$TFMC" generate "${quick[@]}" "$tmp/opus" --prompt "nobody reads" --max-tokens 6 --print-tokens)
same "$ids" "$("$TFMC" generate "${quick[@]}" "$tmp/opus" --tokens "$source" --max-tokens 6 --print-tokens)"
[ -n "$("$TFMC" generate "${quick[@]}" "$tmp/opus" --prompt "nobody reads" --max-tokens 6)" ]
"$TFMC" "${quick[@]}" "$tmp/opus" -o "$tmp/opus.o"
same "$(LC_ALL=C grep -ao TFMCTOK1 "$tmp/opus.o" | wc -l)" 2

# The program of the library's README is one.
sed -n '/^```c$/,/^```$/p' "$TFMC_SOURCE/runtime/tokenizer/README.md" | sed '/^```/d' >"$tmp/readme.c"
cat >"$tmp/readme_main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "readme.c"
#include "stories.h"

int main(void)
{
	struct tfmc_session *session;
	struct tfmc_model model = stories260k_model();
	if (tfmc_session_open(&model, NULL, &session))
		return 1;
	int status = answer(session, "Once upon");
	tfmc_session_close(session);
	return status;
}
END
# shellcheck disable=SC2086
"$CC" -std=c17 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I"$TFMC_SOURCE/runtime/tokenizer" -I"$tmp" "$tmp/readme_main.c" "$tmp/stories.o" \
	"$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/tokenizer/libtfmctok.a" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/readme"
same "$("$tmp/readme")" "$("$TFMC" generate "${quick[@]}" "$stories/model.yaml" --tokens "403 407" --max-tokens 256)"
