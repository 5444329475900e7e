/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packed form of a tokenizer: the compiler writes it, libtfmctok maps it and
 * uses it where it lies. Little-endian, sections aligned to 16 bytes, nothing to
 * parse: a double array over the pieces, a hash table of merges, operations of
 * normalizers and splitters as small programs. A change of any layout or of the
 * meaning of an operation is a new TFMC_TOK_VERSION.
 */
#ifndef TFMC_RUNTIME_TOKENIZER_FORMAT_H
#define TFMC_RUNTIME_TOKENIZER_FORMAT_H

#include <stdint.h>

#define TFMC_TOK_MAGIC   0x314b4f54434d4654ull /* "TFMCTOK1" */
#define TFMC_TOK_VERSION 3u
#define TFMC_TOK_NONE    0xffffffffu
#define TFMC_TOK_ALIGN   16u

/* Bounds of every packed tokenizer; the reader refuses what is larger. */
#define TFMC_TOK_TOKENS_MAX (1u << 24)
#define TFMC_TOK_OPS_MAX    32u
#define TFMC_TOK_ITEMS_MAX  64u

enum tfmc_tok_model { TFMC_TOK_BPE, TFMC_TOK_UNIGRAM, TFMC_TOK_WORDPIECE, TFMC_TOK_WORDLEVEL };

enum tfmc_tok_section_kind {
	TFMC_TOK_OFFSETS,   /* u32 [n_tokens + 1]: where pieces begin in PIECES */
	TFMC_TOK_PIECES,    /* bytes; of byte-level models the bytes themselves, not their letters */
	TFMC_TOK_FLAGS,     /* u8 [n_tokens]: enum tfmc_tok_flag */
	TFMC_TOK_SCORES,    /* f64 [n_tokens] of Unigram, else empty */
	TFMC_TOK_TRIE,      /* struct tfmc_tok_node: pieces that the model may produce */
	TFMC_TOK_PAIRS,     /* struct tfmc_tok_pair [power of two] of BPE, else empty */
	TFMC_TOK_SINGLE,    /* u32 [256]: ids of single bytes, NONE; or empty */
	TFMC_TOK_ADDED,     /* struct tfmc_tok_added */
	TFMC_TOK_RAW_TRIE,  /* added tokens that are looked for in the text as it is */
	TFMC_TOK_NORM_TRIE, /* added tokens that are looked for in normalized text */
	TFMC_TOK_NORMALIZE, /* struct tfmc_tok_op */
	TFMC_TOK_SPLIT,     /* struct tfmc_tok_op */
	TFMC_TOK_TEMPLATE,  /* struct tfmc_tok_item: n_single of one text, then those of a pair */
	TFMC_TOK_CHARSMAP,  /* u32 bytes of the double array, the double array, texts ended by 0 */
	TFMC_TOK_TEXTS,     /* bytes that operations refer to */
	TFMC_TOK_N_SECTIONS
};

enum tfmc_tok_flag {
	TFMC_TOK_F_SPECIAL = 1, /* a control token: decoding may leave it out */
	TFMC_TOK_F_BYTE = 2,    /* stands for one byte, which is the piece */
	TFMC_TOK_F_ADDED = 4,
	TFMC_TOK_F_UNKNOWN = 8, /* a piece without an id: it comes out as the unknown token */
	TFMC_TOK_F_LONE =
	        16, /* Unigram: a character that the model does not know; between others such it is unknown */
};

enum tfmc_tok_added_flag {
	TFMC_TOK_A_LSTRIP = 1, /* takes blanks before it */
	TFMC_TOK_A_RSTRIP = 2,
	TFMC_TOK_A_WORD = 4, /* only between characters that belong to no word */
	TFMC_TOK_A_SPECIAL = 8,
	TFMC_TOK_A_HIDDEN =
	        16, /* does not cut the text: of NORM_TRIE SENTENCEPIECE keeps it, of RAW_TRIE H_CODES finds it */
};

/* What the header says of the whole. */
enum tfmc_tok_header_flag {
	TFMC_TOK_H_BYTE_LEVEL = 1,     /* BPE begins with bytes (SINGLE), not with characters */
	TFMC_TOK_H_FALLBACK = 2,       /* unknown characters become the tokens of their bytes */
	TFMC_TOK_H_FUSE_UNKNOWN = 4,   /* neighbours that are unknown are one token */
	TFMC_TOK_H_WHOLE_WORDS = 8,    /* a word that is a piece is taken without merging */
	TFMC_TOK_H_CUT_AT_MARK = 16,   /* no piece has the mark after anything else: words may be cut there */
	TFMC_TOK_H_DECODE_STRIP = 32,  /* decoding drops one blank at the beginning of the text */
	TFMC_TOK_H_DECODE_CLEAN = 64,  /* WordPiece: no blank before punctuation and contractions */
	TFMC_TOK_H_DECODE_WORDS = 128, /* WordPiece: a blank before each piece without the prefix */
	TFMC_TOK_H_DECODE_SUFFIX =
	        256, /* the suffix of a word becomes a blank, at the end of the text nothing */
	TFMC_TOK_H_DECODE_STRIP_ALL = 1024, /* with DECODE_STRIP: one of each token until text is written */
	TFMC_TOK_H_CODES =
	        2048, /* Marian: `>>code<<` at the beginning of a text, or after an added token, is one token */
	TFMC_TOK_H_BARE = 512, /* the source says nothing of special tokens: a model's start ids go before */
};

/* One step of a double array: child of s for code c is base[s] + c where check is s. Code: byte + 1;
 * code 0 ends a key, the base of that node is its value. Free nodes have check NONE; the root is node 0. */
struct tfmc_tok_node {
	uint32_t base, check;
};

/* Merge of two ids; an empty slot has left NONE. Slot: tfmc_tok_pair_hash, then the next ones in turn. */
struct tfmc_tok_pair {
	uint32_t left, right;
	uint32_t rank; /* the lowest one goes first, the leftmost of equal ones */
	uint32_t id;
};

struct tfmc_tok_added {
	uint32_t id, flags; /* enum tfmc_tok_added_flag */
};

/* Operations; a and b are texts in TEXTS. */
struct tfmc_tok_op {
	uint32_t kind;  /* enum tfmc_tok_normalize or tfmc_tok_split */
	uint32_t flags; /* a number: see the kind */
	uint32_t a, n_a, b, n_b;
};

enum tfmc_tok_normalize {
	TFMC_TOK_NFC,
	TFMC_TOK_NFD,
	TFMC_TOK_NFKC,
	TFMC_TOK_NFKD,
	TFMC_TOK_LOWER,
	TFMC_TOK_STRIP_MARKS,     /* flags 0: all combining marks; 1: those without width */
	TFMC_TOK_REPLACE,         /* every a becomes b */
	TFMC_TOK_REPLACE_BLANKS,  /* runs of at least `flags` spaces become a; flags 0: runs of white space */
	TFMC_TOK_PREPEND,         /* a before text that is not empty; flags 1: unless it is there */
	TFMC_TOK_STRIP,           /* white space: flags 1 left, 2 right */
	TFMC_TOK_BERT_CLEAN,      /* control characters away, white space becomes a space */
	TFMC_TOK_BERT_CJK,        /* spaces around ideographs */
	TFMC_TOK_CHARS,           /* the precompiled map of characters by graphemes, see normalize.c */
	TFMC_TOK_NMT,             /* control characters away, odd blanks become spaces */
	TFMC_TOK_REPLACE_PATTERN, /* every match of the automaton a becomes b */
	/*
	 * All that SentencePiece does, a the mark: tokens of NORM_TRIE stay as they are, the map of characters, spaces become
	 * marks; flags 1: spaces at both ends go, others after one that was written; flags 2: a mark before text that is not
	 * empty.
	 */
	TFMC_TOK_SENTENCEPIECE,
	TFMC_TOK_N_NORMALIZE
};

/*
 * An automaton in TEXTS, aligned to 4 bytes: states, classes, ranges (u32 each); first characters of ranges
 * (u32, from 0 on, 0x80 among them; 0x110000 is a byte that is no UTF-8); classes of 128 characters of ASCII
 * (u8), of ranges (u8), zeros up to a multiple of 4; steps[states][classes] (u16): the next state, or DEAD,
 * and MATCH when a match ends before the character. The last class is the end of the text. State 0 is
 * the first.
 */
#define TFMC_TOK_A_DEAD  0x7fffu
#define TFMC_TOK_A_MATCH 0x8000u

/* How pieces between and with matches are put together, bits 0-2 of flags of splits by matches. */
enum tfmc_tok_behavior {
	TFMC_TOK_REMOVED,
	TFMC_TOK_ISOLATED,
	TFMC_TOK_WITH_PREVIOUS,
	TFMC_TOK_WITH_NEXT,
	TFMC_TOK_CONTIGUOUS,
	TFMC_TOK_N_BEHAVIORS
};
#define TFMC_TOK_BEHAVIOR_MASK 7u
#define TFMC_TOK_INVERT        8u
#define TFMC_TOK_LETTERS       16u /* after ByteLevel: each byte is the letter that stands for it */

enum tfmc_tok_split {
	/* Scanners of the whole text, in the order of their alternatives. */
	TFMC_TOK_SCAN_GPT2,
	TFMC_TOK_SCAN_WORDS, /* Llama 3, Qwen and relatives: flags are TFMC_TOK_W_* */
	TFMC_TOK_SCAN_CLIP,
	TFMC_TOK_SCAN_BLOOM,
	TFMC_TOK_SCAN_CASED, /* o200k: words by upper and lower case; flags as SCAN_WORDS */
	/* Matches, with a behavior. */
	TFMC_TOK_MATCH_TEXT,   /* a */
	TFMC_TOK_MATCH_SPACE,  /* each character of white space */
	TFMC_TOK_MATCH_SPACES, /* \s+ */
	TFMC_TOK_MATCH_PUNCTUATION,
	TFMC_TOK_MATCH_DIGIT,   /* each \p{N} */
	TFMC_TOK_MATCH_DECIMAL, /* each \p{Nd} */
	TFMC_TOK_MATCH_DIGITS3, /* [0-9][0-9][0-9] */
	TFMC_TOK_MATCH_NEWLINE, /* each \r and \n */
	TFMC_TOK_MATCH_NUMBERS, /* \p{N}{1,3} */
	TFMC_TOK_MATCH_PATTERN, /* an automaton, which is text a */
	/* \w+|[^\w\s]+ without the blanks between. */
	TFMC_TOK_SPLIT_WORDS,
	/* Changes of the text of each part. */
	TFMC_TOK_PREFIX_SPACE, /* a space before, unless there is one */
	TFMC_TOK_METASPACE, /* spaces become a; flags: 0 never, 1 the first part, 2 every part begins with a
	                     */
	TFMC_TOK_N_SPLIT
};

/* Flags of SCAN_WORDS: bits 0-7 the most digits of a number (0: any). */
#define TFMC_TOK_W_DIGITS      0xffu
#define TFMC_TOK_W_CASELESS    0x100u /* 'S as well as 's */
#define TFMC_TOK_W_MARKS       0x400u /* letters may be followed by marks: [\p{L}\p{M}]+ */
#define TFMC_TOK_W_NO_CONTRACT 0x800u /* no contractions after words */

enum tfmc_tok_item_kind { TFMC_TOK_TEXT_A, TFMC_TOK_TEXT_B, TFMC_TOK_TOKEN };
struct tfmc_tok_item {
	uint32_t kind, id, type; /* id of TOKEN; type: segment number */
};

struct tfmc_tok_section {
	uint64_t offset, bytes; /* offset from the beginning, a multiple of TFMC_TOK_ALIGN */
};

struct tfmc_tok_header {
	uint64_t magic;
	uint32_t version, n_sections;
	uint64_t bytes;    /* of everything */
	uint64_t checksum; /* tfmc_tok_checksum of what lies after this field */
	uint32_t model;    /* enum tfmc_tok_model */
	uint32_t flags;    /* enum tfmc_tok_header_flag */
	uint32_t n_tokens;
	uint32_t unknown;             /* NONE: characters without a token are dropped */
	uint32_t bos, eos, pad, mask; /* NONE: not known */
	uint32_t word_max;            /* WordPiece: longer words, in characters, are unknown */
	uint32_t n_single;            /* items of TEMPLATE for one text */
	uint32_t mark, n_mark;     /* text of the mark of word beginnings ("▁"), for cutting and decoding */
	uint32_t prefix, n_prefix; /* WordPiece: of continuations; BPE: suffix of words */
	double unknown_score;      /* Unigram: of a character without a piece */
	struct tfmc_tok_section sections[TFMC_TOK_N_SECTIONS];
};

static inline uint32_t tfmc_tok_pair_hash(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15ull;
	return (uint32_t)(h >> 32);
}

/* Four interleaved FNV-1a streams over 32-bit words; n is a multiple of 16. */
static inline uint64_t tfmc_tok_checksum(const void *data, uint64_t n)
{
	const uint32_t *words = (const uint32_t *)data;
	uint64_t h[4] = {0xcbf29ce484222325ull, 1, 2, 3};
	for (uint64_t i = 0; i + 4 <= n / 4; i += 4)
		for (unsigned k = 0; k < 4; k++)
			h[k] = (h[k] ^ words[i + k]) * 0x100000001b3ull;
	return (((h[0] * 31 + h[1]) * 31 + h[2]) * 31 + h[3]) ^ n;
}

#endif
