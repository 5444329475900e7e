/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers and splitters of tokenizer.json as operations. A component that
 * is not in the tables is refused by its type and place, a regular expression
 * that is not known by its text.
 */
#include <string.h>

#include "frontend/tokenizer_files/class.h"
#include "frontend/tokenizer/pattern.h"

static const struct tokenizer_string nothing = {"", 0};

static bool normalize_with(struct tokenizer_reader *r, const char *path, enum tfmc_tok_normalize kind,
                           uint32_t flags, struct tokenizer_string a, struct tokenizer_string b)
{
	return tokenizer_add_op(&r->desc->normalize, (uint32_t)kind, flags, a, b) ||
	       tokenizer_reject(r, TOKENIZER_WRONG, path, "more than %u operations", TFMC_TOK_OPS_MAX);
}

/* After ByteLevel the text is written in letters of bytes, which matter to what looks at characters. */
static bool split_with(struct tokenizer_reader *r, const char *path, enum tfmc_tok_split kind, uint32_t flags,
                       struct tokenizer_string a)
{
	bool matches = kind > TFMC_TOK_MATCH_TEXT && kind <= TFMC_TOK_MATCH_PATTERN;
	if (r->in_letters && !matches)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "this component after ByteLevel");
	if (r->in_letters)
		flags |= TFMC_TOK_LETTERS;
	return tokenizer_add_op(&r->desc->split, (uint32_t)kind, flags, a, nothing) ||
	       tokenizer_reject(r, TOKENIZER_WRONG, path, "more than %u operations", TFMC_TOK_OPS_MAX);
}

/* ---- normalizers ---- */

static bool read_prepend(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_text(r, n, path, "prepend", "");
	if (tokenizer_class_prefix(r) == 0 && !strcmp(text, TOKENIZER_MARK))
		return !r->failed;
	return normalize_with(r, path, TFMC_TOK_PREPEND, 0, tokenizer_string(text), nothing);
}

static bool read_strip(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	uint32_t flags = (tokenizer_bool(r, n, path, "strip_left", true) ? 1u : 0u) |
	                 (tokenizer_bool(r, n, path, "strip_right", true) ? 2u : 0u);
	return normalize_with(r, path, TFMC_TOK_STRIP, flags, nothing, nothing);
}

/* The first ones are those that most files have. */
static bool replace_regex(struct tokenizer_reader *r, const char *path, const char *regex,
                          const char *content)
{
	struct tokenizer_string to = tokenizer_string(content);
	if (!strcmp(regex, " {2,}"))
		return normalize_with(r, path, TFMC_TOK_REPLACE_BLANKS, 2, to, nothing);
	if (!strcmp(regex, " +"))
		return normalize_with(r, path, TFMC_TOK_REPLACE_BLANKS, 1, to, nothing);
	if (!strcmp(regex, "\\s+"))
		return normalize_with(r, path, TFMC_TOK_REPLACE_BLANKS, 0, to, nothing);
	const char *why;
	struct tokenizer_string automaton = pattern_compile(r->source->arena, regex, &why);
	if (automaton.n == 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the regular expression '%s': %s",
		                        regex, why);
	return normalize_with(r, path, TFMC_TOK_REPLACE_PATTERN, 0, automaton, to);
}

static bool read_replace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct json_node *pattern = json_find(n, "pattern");
	const char *text = tokenizer_text(r, pattern, path, "String", NULL);
	const char *regex = tokenizer_text(r, pattern, path, "Regex", NULL);
	const char *content = tokenizer_text(r, n, path, "content", "");
	if (r->failed)
		return false;
	if (regex != NULL)
		return replace_regex(r, path, regex, content);
	if (text == NULL || !*text)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no pattern");
	return normalize_with(r, path, TFMC_TOK_REPLACE, 0, tokenizer_string(text),
	                      tokenizer_string(content));
}

static bool read_charsmap(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_text(r, n, path, "precompiled_charsmap", NULL);
	if (r->failed || text == NULL || !*text)
		return !r->failed; /* an empty map changes nothing */
	if (r->desc->charsmap.n)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "two maps of characters");
	r->desc->charsmap = tokenizer_base64(r, tokenizer_path(r, path, "precompiled_charsmap"), text);
	return !r->failed && normalize_with(r, path, TFMC_TOK_CHARS, 0, nothing, nothing);
}

static bool read_bert(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct tokenizer_config *c = r->config;
	bool lower = tokenizer_bool(r, n, path, "lowercase", true);
	bool strip = tokenizer_bool(r, n, path, "strip_accents", lower);
	bool chinese = tokenizer_bool(r, n, path, "handle_chinese_chars", true);
	bool clean = tokenizer_bool(r, n, path, "clean_text", true), ok = true;
	if (tokenizer_class_is_bert(r)) { /* its flags and defaults are above those of the file */
		lower = c->lowercase != 0;
		strip = c->strip_accents < 0 ? lower : c->strip_accents == 1;
		chinese = c->chinese != 0;
		clean = true;
	}
	if (clean)
		ok = ok && normalize_with(r, path, TFMC_TOK_BERT_CLEAN, 0, nothing, nothing);
	if (chinese)
		ok = ok && normalize_with(r, path, TFMC_TOK_BERT_CJK, 0, nothing, nothing);
	if (strip)
		ok = ok && normalize_with(r, path, TFMC_TOK_NFD, 0, nothing, nothing) &&
		     normalize_with(r, path, TFMC_TOK_STRIP_MARKS, 1, nothing, nothing);
	if (lower)
		ok = ok && normalize_with(r, path, TFMC_TOK_LOWER, 0, nothing, nothing);
	return ok;
}

/* Albert's class puts its normalizer in place of the file's, which differs in what the flags ask for. */
static bool is_left_out(const struct tokenizer_reader *r, enum tfmc_tok_normalize kind)
{
	const struct tokenizer_config *c = r->config;
	if (c == NULL || c->class == NULL || strcmp(c->class->names, "AlbertTokenizer") != 0)
		return false;
	bool accents = kind == TFMC_TOK_NFKD || kind == TFMC_TOK_STRIP_MARKS;
	return (kind == TFMC_TOK_LOWER && c->lowercase == 0) || (accents && c->keep_accents == 1);
}

bool tokenizer_read_normalizer(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct {
		const char *type;
		enum tfmc_tok_normalize kind;
	} plain[] = {{"NFC", TFMC_TOK_NFC},         {"NFD", TFMC_TOK_NFD},
	             {"NFKC", TFMC_TOK_NFKC},       {"NFKD", TFMC_TOK_NFKD},
	             {"Lowercase", TFMC_TOK_LOWER}, {"StripAccents", TFMC_TOK_STRIP_MARKS},
	             {"Nmt", TFMC_TOK_NMT}};
	static const struct tokenizer_part parts[] = {
	        {"Prepend", read_prepend},      {"Strip", read_strip},         {"Replace", read_replace},
	        {"Precompiled", read_charsmap}, {"BertNormalizer", read_bert}, {NULL, NULL},
	};
	for (size_t i = 0; i < TFMC_COUNT(plain); i++)
		if (tokenizer_is_type(n, plain[i].type))
			return is_left_out(r, plain[i].kind) ||
			       normalize_with(r, path, plain[i].kind, 0, nothing, nothing);
	return tokenizer_read_part(r, n, path, parts, "normalizers", tokenizer_read_normalizer);
}

/* ---- splitters ---- */

static bool read_behavior(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                          const char *fallback, uint32_t *out)
{
	static const char *const names[TFMC_TOK_N_BEHAVIORS] = {"Removed", "Isolated", "MergedWithPrevious",
	                                                        "MergedWithNext", "Contiguous"};
	const char *name = tokenizer_text(r, n, path, "behavior", fallback);
	*out = 0;
	for (uint32_t i = 0; i < TFMC_TOK_N_BEHAVIORS; i++) {
		if (!strcmp(names[i], name)) {
			*out = i | (tokenizer_bool(r, n, path, "invert", false) ? TFMC_TOK_INVERT : 0u);
			return !r->failed;
		}
	}
	return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the behavior '%s'", name);
}

static bool read_byte_level(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	int prefix = tokenizer_class_byte_prefix(r);
	bool add = tokenizer_bool(r, n, path, "add_prefix_space", true);
	if ((prefix < 0 ? add : prefix == 1) && !split_with(r, path, TFMC_TOK_PREFIX_SPACE, 0, nothing))
		return false;
	if (tokenizer_bool(r, n, path, "use_regex", true) &&
	    !split_with(r, path, TFMC_TOK_SCAN_GPT2, 0, nothing))
		return false;
	r->byte_level = r->in_letters = true;
	return true;
}

/* A scanner covers all of the text, so that isolated matches and what is left of removed others are the same.
 */
static bool split_regex(struct tokenizer_reader *r, const char *path, const char *regex, uint32_t behavior)
{
	struct tokenizer_op op;
	if (!tokenizer_known_regex(regex, &op)) {
		const char *why;
		op = (struct tokenizer_op){TFMC_TOK_MATCH_PATTERN, 0,
		                           pattern_compile(r->source->arena, regex, &why), nothing};
		if (op.a.n == 0)
			return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
			                        "the regular expression '%s': %s", regex, why);
	}
	bool is_scan = op.kind < TFMC_TOK_MATCH_TEXT;
	bool isolates = behavior == TFMC_TOK_ISOLATED || behavior == (TFMC_TOK_REMOVED | TFMC_TOK_INVERT);
	if (op.kind == TFMC_TOK_SCAN_CLIP && behavior != (TFMC_TOK_REMOVED | TFMC_TOK_INVERT))
		isolates = false;
	if (op.kind == TFMC_TOK_SCAN_BLOOM && behavior != TFMC_TOK_ISOLATED)
		isolates = false;
	if (is_scan && !isolates)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "this behavior with '%s'", regex);
	return split_with(r, path, (enum tfmc_tok_split)op.kind, is_scan ? op.flags : behavior, op.a);
}

static bool read_split(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct json_node *pattern = json_find(n, "pattern");
	const char *text = tokenizer_text(r, pattern, path, "String", NULL);
	const char *regex = tokenizer_text(r, pattern, path, "Regex", NULL);
	uint32_t behavior;
	if (r->failed || !read_behavior(r, n, path, "Removed", &behavior))
		return false;
	if (regex != NULL)
		return split_regex(r, path, regex, behavior);
	if (text == NULL || !*text)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no pattern");
	return split_with(r, path, TFMC_TOK_MATCH_TEXT, behavior, tokenizer_string(text));
}

static bool read_metaspace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *mark = tokenizer_text(r, n, path, "replacement", TOKENIZER_MARK);
	bool add = tokenizer_bool(r, n, path, "add_prefix_space", true);
	const char *scheme = tokenizer_text(r, n, path, "prepend_scheme", add ? "always" : "never");
	int prefix = tokenizer_class_prefix(r);
	scheme = prefix == 0 ? "never" : prefix == 1 && !strcmp(scheme, "never") ? "always" : scheme;
	uint32_t when = !strcmp(scheme, "always") ? 2 : !strcmp(scheme, "first") ? 1 : 0;
	if (!*mark || (when == 0 && strcmp(scheme, "never") != 0))
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the scheme '%s'", scheme);
	r->desc->mark = tokenizer_string(mark);
	return split_with(r, path, TFMC_TOK_METASPACE, when, tokenizer_string(mark)) &&
	       (!tokenizer_bool(r, n, path, "split", true) ||
	        split_with(r, path, TFMC_TOK_MATCH_TEXT, TFMC_TOK_WITH_NEXT, tokenizer_string(mark)));
}

static bool read_delimiter(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_text(r, n, path, "delimiter", "");
	if (!*text)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no delimiter");
	return split_with(r, path, TFMC_TOK_MATCH_TEXT, TFMC_TOK_REMOVED, tokenizer_string(text));
}

static bool read_punctuation(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	uint32_t behavior;
	return read_behavior(r, n, path, "Isolated", &behavior) &&
	       split_with(r, path, TFMC_TOK_MATCH_PUNCTUATION, behavior, nothing);
}

static bool read_digits(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	bool each = tokenizer_bool(r, n, path, "individual_digits", false);
	return split_with(r, path, TFMC_TOK_MATCH_DIGIT, each ? TFMC_TOK_ISOLATED : TFMC_TOK_CONTIGUOUS,
	                  nothing);
}

bool tokenizer_read_splitter(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct tokenizer_part parts[] = {
	        {"ByteLevel", read_byte_level},
	        {"Split", read_split},
	        {"Metaspace", read_metaspace},
	        {"CharDelimiterSplit", read_delimiter},
	        {"Punctuation", read_punctuation},
	        {"Digits", read_digits},
	        {NULL, NULL},
	};
	if (tokenizer_is_type(n, "Whitespace"))
		return split_with(r, path, TFMC_TOK_SPLIT_WORDS, 0, nothing);
	if (tokenizer_is_type(n, "WhitespaceSplit"))
		return split_with(r, path, TFMC_TOK_MATCH_SPACE, TFMC_TOK_REMOVED, nothing);
	if (tokenizer_is_type(n, "BertPreTokenizer"))
		return split_with(r, path, TFMC_TOK_MATCH_SPACE, TFMC_TOK_REMOVED, nothing) &&
		       split_with(r, path, TFMC_TOK_MATCH_PUNCTUATION, TFMC_TOK_ISOLATED, nothing);
	return tokenizer_read_part(r, n, path, parts, "pretokenizers", tokenizer_read_splitter);
}
