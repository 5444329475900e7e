/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed tokenizer: the binary format that the compiler writes and libtfmctok reads in place (mmap, nothing
 * to parse). Little-endian, sections aligned to 16 bytes: a double-array trie (Aoe 1989) of the pieces, a
 * hash table of BPE merges, normalizers and splitters as lists of operations. Any change of a layout or of
 * the meaning of an operation is a new TFMC_TOK_VERSION.
 */
#ifndef TFMC_RUNTIME_TOKENIZER_FORMAT_H
#define TFMC_RUNTIME_TOKENIZER_FORMAT_H

#include <stdint.h>

#define TFMC_TOK_MAGIC   0x314b4f54434d4654ull /* "TFMCTOK1" */
#define TFMC_TOK_VERSION 4u
#define TFMC_TOK_NONE    0xffffffffu
#define TFMC_TOK_ALIGN   16u

/* Bounds of every packed tokenizer; the reader rejects larger values. */
#define TFMC_TOK_TOKENS_MAX (1u << 24)
#define TFMC_TOK_OPS_MAX    32u
#define TFMC_TOK_ITEMS_MAX  64u

enum tfmc_tok_model { TFMC_TOK_BPE, TFMC_TOK_UNIGRAM, TFMC_TOK_WORDPIECE, TFMC_TOK_WORDLEVEL };

enum tfmc_tok_section_kind {
	TFMC_TOK_OFFSETS,   /* u32 [n_tokens + 1]: offsets of the pieces in PIECES */
	TFMC_TOK_PIECES,    /* bytes of the pieces; byte-level models: the raw bytes, not the letters that
			       GPT-2 writes for them */
	TFMC_TOK_FLAGS,     /* u8 [n_tokens]: enum tfmc_tok_flag */
	TFMC_TOK_SCORES,    /* f64 [n_tokens] of Unigram, else empty */
	TFMC_TOK_TRIE,      /* struct tfmc_tok_node: trie of the pieces that the model may produce */
	TFMC_TOK_PAIRS,     /* struct tfmc_tok_pair [power of two] of BPE, else empty */
	TFMC_TOK_SINGLE,    /* u32 [256]: ids of the single-byte tokens, NONE: no such token; or empty */
	TFMC_TOK_ADDED,     /* struct tfmc_tok_added */
	TFMC_TOK_RAW_TRIE,  /* trie of the added tokens that are matched in the raw text */
	TFMC_TOK_NORM_TRIE, /* trie of the added tokens that are matched in normalized text */
	TFMC_TOK_NORMALIZE, /* struct tfmc_tok_op */
	TFMC_TOK_SPLIT,     /* struct tfmc_tok_op */
	TFMC_TOK_TEMPLATE,  /* struct tfmc_tok_item: n_single items of the template for one text, then the
			       template for a pair */
	TFMC_TOK_CHARSMAP,  /* precompiled character map of SentencePiece: u32 size of the double array,
			       the double array, 0-terminated strings */
	TFMC_TOK_TEXTS,     /* string operands of the operations */
	TFMC_TOK_N_SECTIONS
};

enum tfmc_tok_flag {
	TFMC_TOK_F_SPECIAL = 1, /* control token: decoding may omit it */
	TFMC_TOK_F_BYTE = 2,    /* byte-fallback token: stands for one byte, which is its piece */
	TFMC_TOK_F_ADDED = 4,
	TFMC_TOK_F_UNKNOWN = 8, /* a piece without an id of its own: encoded as the unknown token */
	TFMC_TOK_F_LONE =
	        16, /* Unigram: a character that the model does not know but the vocabulary has; among
		       unknown neighbours it is unknown */
};

enum tfmc_tok_added_flag {
	TFMC_TOK_A_LSTRIP = 1, /* also consumes white space before it */
	TFMC_TOK_A_RSTRIP = 2,
	TFMC_TOK_A_WORD = 4, /* matches only between characters that are not word characters */
	TFMC_TOK_A_SPECIAL = 8,
	TFMC_TOK_A_HIDDEN =
	        16, /* does not split the text: in NORM_TRIE a symbol that SENTENCEPIECE preserves, in
		       RAW_TRIE a code that H_CODES finds */
};

/* Flags of the whole tokenizer. */
enum tfmc_tok_header_flag {
	TFMC_TOK_H_BYTE_LEVEL = 1,     /* BPE starts from bytes (SINGLE), not from characters */
	TFMC_TOK_H_FALLBACK = 2,       /* byte fallback: unknown characters become the tokens of their
				          bytes */
	TFMC_TOK_H_FUSE_UNKNOWN = 4,   /* consecutive unknown characters are one unknown token */
	TFMC_TOK_H_WHOLE_WORDS = 8,    /* a word that is a piece is emitted without merging */
	TFMC_TOK_H_CUT_AT_MARK = 16,   /* no piece has the word mark after its first character: words may
				          be cut there */
	TFMC_TOK_H_DECODE_STRIP = 32,  /* decoding removes one space at the beginning of the text */
	TFMC_TOK_H_DECODE_CLEAN = 64,  /* WordPiece: no space before punctuation and contractions */
	TFMC_TOK_H_DECODE_WORDS = 128, /* WordPiece: a space before each piece without the continuation
				          prefix */
	TFMC_TOK_H_DECODE_SUFFIX =
	        256, /* the end-of-word suffix is decoded to a space, at the end of the text to nothing */
	TFMC_TOK_H_DECODE_STRIP_ALL = 1024, /* with DECODE_STRIP: removes one space of each token until
					       text is written */
	TFMC_TOK_H_CODES =
	        2048, /* Marian: the language code `>>code<<` at the beginning of a text, or after an added
		         token, is one token */
	TFMC_TOK_H_BARE = 512, /* the source file defines no special tokens: the caller adds the model's
			          start ids */
};

/* Node of a double-array trie: the child of node s for code c is base[s] + c if its check is s. Code: byte
 * + 1; code 0 terminates a key, and the base of that node is the value of the key. Free nodes have check
 * NONE; the root is node 0. */
struct tfmc_tok_node {
	uint32_t base, check;
};

/* BPE merge of two ids, in an open-addressing hash table with linear probing; an empty slot has left =
 * NONE. First slot: tfmc_tok_pair_hash. */
struct tfmc_tok_pair {
	uint32_t left, right;
	uint32_t rank; /* the lowest rank merges first, the leftmost pair of equal rank */
	uint32_t id;
};

/* Added token, a value in RAW_TRIE or NORM_TRIE. */
struct tfmc_tok_added {
	uint32_t id, flags; /* enum tfmc_tok_added_flag */
};

/* Operation of a normalizer or splitter; a and b: offsets of strings in TEXTS, n_a and n_b their bytes. */
struct tfmc_tok_op {
	uint32_t kind;  /* enum tfmc_tok_normalize or tfmc_tok_split */
	uint32_t flags; /* parameter, see the kind */
	uint32_t a, n_a, b, n_b;
};

enum tfmc_tok_normalize {
	TFMC_TOK_NFC,
	TFMC_TOK_NFD,
	TFMC_TOK_NFKC,
	TFMC_TOK_NFKD,
	TFMC_TOK_LOWER,
	TFMC_TOK_STRIP_MARKS,     /* flags 0: removes all combining marks; 1: nonspacing marks only */
	TFMC_TOK_REPLACE,         /* replaces every a by b */
	TFMC_TOK_REPLACE_BLANKS,  /* replaces runs of at least `flags` spaces by a; flags 0: runs of any
				     white space */
	TFMC_TOK_PREPEND,         /* prepends a to text that is not empty; flags 1: unless it starts with
				     it */
	TFMC_TOK_STRIP,           /* trims white space: flags 1 left, 2 right */
	TFMC_TOK_BERT_CLEAN,      /* removes control characters, white space becomes a space */
	TFMC_TOK_BERT_CJK,        /* surrounds CJK ideographs with spaces */
	TFMC_TOK_CHARS,           /* the precompiled character map, applied by graphemes, see normalize.c */
	TFMC_TOK_NMT,             /* removes control characters, unusual spaces become a space */
	TFMC_TOK_REPLACE_PATTERN, /* replaces every match of the automaton a by b */
	/*
	 * The whole normalization of SentencePiece, a: the word mark. Tokens of NORM_TRIE are preserved, the
	 * character map is applied, spaces become marks. flags 1: removes spaces at both ends and repeated
	 * spaces; flags 2: a mark before text that is not empty.
	 */
	TFMC_TOK_SENTENCEPIECE,
	TFMC_TOK_N_NORMALIZE
};

/*
 * Deterministic automaton of a regular expression in TEXTS, aligned to 4 bytes: number of states, classes,
 * ranges (u32 each); first characters of the ranges (u32, ascending from 0, 0x80 among them; 0x110000 is an
 * invalid UTF-8 byte); character classes of the 128 ASCII characters (u8) and of the ranges (u8), zero-padded
 * to a multiple of 4; transitions [states][classes] (u16): next state or DEAD, plus MATCH if a match ends
 * before the character. The last class is the end of the text. State 0 is the start.
 */
#define TFMC_TOK_A_DEAD  0x7fffu
#define TFMC_TOK_A_MATCH 0x8000u

/* Split behavior (as in Hugging Face tokenizers): how matches and the text between them form parts; bits
 * 0-2 of the flags of splits by matches. */
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
#define TFMC_TOK_LETTERS \
	16u /* after ByteLevel: the pattern sees each byte as the letter that GPT-2
				      writes for it */

enum tfmc_tok_split {
	/* Splits by matches, with a behavior. */
	TFMC_TOK_MATCH_TEXT,   /* a */
	TFMC_TOK_MATCH_SPACE,  /* each character of white space */
	TFMC_TOK_MATCH_SPACES, /* \s+ */
	TFMC_TOK_MATCH_PUNCTUATION,
	TFMC_TOK_MATCH_DIGIT,   /* each \p{N} */
	TFMC_TOK_MATCH_DECIMAL, /* each \p{Nd} */
	TFMC_TOK_MATCH_DIGITS3, /* [0-9][0-9][0-9] */
	TFMC_TOK_MATCH_NEWLINE, /* each \r and \n */
	TFMC_TOK_MATCH_NUMBERS, /* \p{N}{1,3} */
	TFMC_TOK_MATCH_PATTERN, /* the automaton a */
	/* \w+|[^\w\s]+, white space is dropped */
	TFMC_TOK_SPLIT_WORDS,
	/* Rewriting of each part. */
	TFMC_TOK_PREFIX_SPACE, /* prepends a space unless there is one */
	TFMC_TOK_METASPACE,    /* spaces become a; flags: a is prepended to 0 no part, 1 the first part, 2
			       every part */
	TFMC_TOK_N_SPLIT
};

enum tfmc_tok_item_kind { TFMC_TOK_TEXT_A, TFMC_TOK_TEXT_B, TFMC_TOK_TOKEN };
/* Item of a template: a text or a token. */
struct tfmc_tok_item {
	uint32_t kind, id, type; /* id: of TOKEN; type: segment id */
};

struct tfmc_tok_section {
	uint64_t offset, bytes; /* offset from the header, a multiple of TFMC_TOK_ALIGN */
};

/* Header of a packed tokenizer. */
struct tfmc_tok_header {
	uint64_t magic;
	uint32_t version, n_sections;
	uint64_t bytes;    /* total size */
	uint64_t checksum; /* tfmc_tok_checksum of all bytes after this field */
	uint32_t model;    /* enum tfmc_tok_model */
	uint32_t flags;    /* enum tfmc_tok_header_flag */
	uint32_t n_tokens;
	uint32_t unknown;             /* NONE: characters without a token are dropped */
	uint32_t bos, eos, pad, mask; /* NONE: not known */
	uint32_t word_max;            /* WordPiece: words of more characters are unknown */
	uint32_t n_single;            /* number of TEMPLATE items for one text */
	uint32_t mark, n_mark;        /* string of the word mark ("▁"), for cutting and decoding */
	uint32_t prefix, n_prefix;    /* WordPiece: continuation prefix; BPE: end-of-word suffix */
	double unknown_score;         /* Unigram: score of an unknown character */
	struct tfmc_tok_section sections[TFMC_TOK_N_SECTIONS];
};

static inline uint32_t tfmc_tok_pair_hash(uint32_t left, uint32_t right)
{
	uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15ull;
	return (uint32_t)(h >> 32);
}

/* Four interleaved FNV-1a streams over u32; n is a multiple of 16. */
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
