/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers and splitters of tokenizer.json as operations. Unknown components are rejected by type and path. A
 * regular expression of single characters is mapped to their match, any other one compiled to an automaton. An
 * operation is one step of the runtime's pipeline; runtime/tokenizer/format.h documents its flags.
 * Members have the defaults of Hugging Face's library; a wrong one sets r->failed, and readers return false at their
 * end.
 */
#include <string.h>

#include "frontend/tokenizer/json.h"
#include "frontend/tokenizer/pattern.h"

static const struct tokenizer_string no_string = {"", 0};

/* Appends a normalizer operation. */
static bool add_normalizer(struct tokenizer_reader *r, const char *path, enum tfmc_tok_normalize kind,
                           uint32_t flags, struct tokenizer_string a, struct tokenizer_string b)
{
	return tokenizer_add_op(&r->desc->normalize, (uint32_t)kind, flags, a, b) ||
	       tokenizer_reject(r, TOKENIZER_WRONG, path, "more than %u operations", TFMC_TOK_OPS_MAX);
}

/* Appends a splitter. After ByteLevel the text is written in letters of bytes in Hugging Face's library, here not:
 * matches of characters and patterns get a flag with which they read bytes as letters; other splitters, also by a
 * string, are not supported there. */
static bool add_splitter(struct tokenizer_reader *r, const char *path, enum tfmc_tok_split kind,
                         uint32_t flags, struct tokenizer_string a)
{
	bool matches = kind > TFMC_TOK_MATCH_TEXT && kind <= TFMC_TOK_MATCH_PATTERN;
	if (r->in_letters && !matches)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "this component after ByteLevel");
	if (r->in_letters)
		flags |= TFMC_TOK_LETTERS;
	return tokenizer_add_op(&r->desc->split, (uint32_t)kind, flags, a, no_string) ||
	       tokenizer_reject(r, TOKENIZER_WRONG, path, "more than %u operations", TFMC_TOK_OPS_MAX);
}

/* ---- base64 ---- */

/* Value of a digit of base64; -1: none. */
static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64; an empty string after a diagnostic. `have`: bits that are not yet written. */
static struct tokenizer_string decode_base64(struct tokenizer_reader *r, const char *path, const char *text)
{
	size_t len = strlen(text), n = 0;
	char *out = arena_alloc(r->source->arena, len + 1);
	uint32_t bits = 0;
	unsigned have = 0;
	while (len && text[len - 1] == '=')
		len--;
	for (size_t i = 0; out != NULL && i < len; i++) {
		int digit = base64_digit(text[i]);
		if (digit < 0) {
			tokenizer_reject(r, TOKENIZER_WRONG, path, "no base64");
			return (struct tokenizer_string){"", 0};
		}
		bits = (bits << 6 | (uint32_t)digit) & 0xffffff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[n++] = (char)(bits >> have & 0xff);
		}
	}
	if (out == NULL)
		r->no_memory = r->failed = true;
	return (struct tokenizer_string){out, n};
}

/* ---- normalizers ---- */

/* Prepend. The class of the configuration may switch off the word mark in front, which then is no operation. */
static bool read_prepend(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_string_member(r, n, path, "prepend", "");
	if (tokenizer_class_prefix(r) == 0 && !strcmp(text, TOKENIZER_MARK))
		return !r->failed;
	return add_normalizer(r, path, TFMC_TOK_PREPEND, 0, tokenizer_string(text), no_string);
}

static bool read_strip(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	uint32_t flags = (tokenizer_bool_member(r, n, path, "strip_left", true) ? 1u : 0u) |
	                 (tokenizer_bool_member(r, n, path, "strip_right", true) ? 2u : 0u);
	return add_normalizer(r, path, TFMC_TOK_STRIP, flags, no_string, no_string);
}

/* Common expressions have an operation of their own, with the least number of spaces (0: of any white space); others
 * are compiled. */
static bool replace_regex(struct tokenizer_reader *r, const char *path, const char *regex,
                          const char *content)
{
	struct tokenizer_string to = tokenizer_string(content);
	if (!strcmp(regex, " {2,}"))
		return add_normalizer(r, path, TFMC_TOK_REPLACE_BLANKS, 2, to, no_string);
	if (!strcmp(regex, " +"))
		return add_normalizer(r, path, TFMC_TOK_REPLACE_BLANKS, 1, to, no_string);
	if (!strcmp(regex, "\\s+"))
		return add_normalizer(r, path, TFMC_TOK_REPLACE_BLANKS, 0, to, no_string);
	const char *why;
	struct tokenizer_string automaton = pattern_compile(r->source->arena, regex, &why);
	if (automaton.n == 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the regular expression '%s': %s",
		                        regex, why);
	return add_normalizer(r, path, TFMC_TOK_REPLACE_PATTERN, 0, automaton, to);
}

/* Replace: a string or a regular expression by `content`. */
static bool read_replace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct json_node *pattern = json_find(n, "pattern");
	const char *text = tokenizer_string_member(r, pattern, path, "String", NULL);
	const char *regex = tokenizer_string_member(r, pattern, path, "Regex", NULL);
	const char *content = tokenizer_string_member(r, n, path, "content", "");
	if (r->failed)
		return false;
	if (regex != NULL)
		return replace_regex(r, path, regex, content);
	if (text == NULL || !*text)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no pattern");
	return add_normalizer(r, path, TFMC_TOK_REPLACE, 0, tokenizer_string(text),
	                      tokenizer_string(content));
}

/* Precompiled: SentencePiece's map of characters in base64. */
static bool read_charsmap(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_string_member(r, n, path, "precompiled_charsmap", NULL);
	if (r->failed || text == NULL || !*text)
		return !r->failed; /* an empty map has no effect */
	if (r->desc->charsmap.n)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "two maps of characters");
	r->desc->charsmap = decode_base64(r, tokenizer_member_path(r, path, "precompiled_charsmap"), text);
	return !r->failed && add_normalizer(r, path, TFMC_TOK_CHARS, 0, no_string, no_string);
}

/* BertNormalizer, as one operation for each of its flags. */
static bool read_bert(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct tokenizer_config *c = r->config;
	bool lower = tokenizer_bool_member(r, n, path, "lowercase", true);
	bool strip = tokenizer_bool_member(r, n, path, "strip_accents", lower);
	bool chinese = tokenizer_bool_member(r, n, path, "handle_chinese_chars", true);
	bool clean = tokenizer_bool_member(r, n, path, "clean_text", true), ok = true;
	if (tokenizer_class_is_bert(r)) { /* its flags and defaults override those of the file */
		lower = c->lowercase != 0;
		strip = c->strip_accents < 0 ? lower : c->strip_accents == 1;
		chinese = c->chinese != 0;
		clean = true;
	}
	if (clean)
		ok = ok && add_normalizer(r, path, TFMC_TOK_BERT_CLEAN, 0, no_string, no_string);
	if (chinese)
		ok = ok && add_normalizer(r, path, TFMC_TOK_BERT_CJK, 0, no_string, no_string);
	if (strip)
		ok = ok && add_normalizer(r, path, TFMC_TOK_NFD, 0, no_string, no_string) &&
		     add_normalizer(r, path, TFMC_TOK_STRIP_MARKS, 1, no_string, no_string);
	if (lower)
		ok = ok && add_normalizer(r, path, TFMC_TOK_LOWER, 0, no_string, no_string);
	return ok;
}

/* True: Albert's class disables this step by its flags, which override the normalizer of the file. */
static bool is_disabled_by_class(const struct tokenizer_reader *r, enum tfmc_tok_normalize kind)
{
	const struct tokenizer_config *c = r->config;
	if (c == NULL || c->class == NULL || strcmp(c->class->names, "AlbertTokenizer") != 0)
		return false;
	bool accents = kind == TFMC_TOK_NFKD || kind == TFMC_TOK_STRIP_MARKS;
	return (kind == TFMC_TOK_LOWER && c->lowercase == 0) || (accents && c->keep_accents == 1);
}

/* Components without members are mapped by a table, the others have a reader. */
bool tokenizer_read_normalizer(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct {
		const char *type;
		enum tfmc_tok_normalize kind;
	} plain[] = {{"NFC", TFMC_TOK_NFC},         {"NFD", TFMC_TOK_NFD},
	             {"NFKC", TFMC_TOK_NFKC},       {"NFKD", TFMC_TOK_NFKD},
	             {"Lowercase", TFMC_TOK_LOWER}, {"StripAccents", TFMC_TOK_STRIP_MARKS},
	             {"Nmt", TFMC_TOK_NMT}};
	static const struct tokenizer_component parts[] = {
	        {"Prepend", read_prepend},      {"Strip", read_strip},         {"Replace", read_replace},
	        {"Precompiled", read_charsmap}, {"BertNormalizer", read_bert}, {NULL, NULL},
	};
	for (size_t i = 0; i < TFMC_COUNT(plain); i++)
		if (tokenizer_is_type(n, plain[i].type))
			return is_disabled_by_class(r, plain[i].kind) ||
			       add_normalizer(r, path, plain[i].kind, 0, no_string, no_string);
	return tokenizer_read_component(r, n, path, parts, "normalizers", tokenizer_read_normalizer);
}

/* ---- regular expressions with a match of their own ---- */

static const struct {
	const char *regex;
	enum tfmc_tok_split kind;
} known_regexes[] = {
        {"\\s+", TFMC_TOK_MATCH_SPACES},
        {"\\s", TFMC_TOK_MATCH_SPACE},
        {"[0-9][0-9][0-9]", TFMC_TOK_MATCH_DIGITS3},
        {"[\\r\\n]", TFMC_TOK_MATCH_NEWLINE},
        {"\\p{N}{1,3}", TFMC_TOK_MATCH_NUMBERS},
        {"\\p{N}", TFMC_TOK_MATCH_DIGIT},
        {"\\d", TFMC_TOK_MATCH_DECIMAL},
};

/* ---- splitters ---- */

/* Reads `behavior` and `invert` of a split into the flags of its operation; false after a diagnostic. */
static bool read_behavior(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                          const char *fallback, uint32_t *out)
{
	static const char *const names[TFMC_TOK_N_BEHAVIORS] = {"Removed", "Isolated", "MergedWithPrevious",
	                                                        "MergedWithNext", "Contiguous"};
	const char *name = tokenizer_string_member(r, n, path, "behavior", fallback);
	*out = 0;
	for (uint32_t i = 0; i < TFMC_TOK_N_BEHAVIORS; i++) {
		if (!strcmp(names[i], name)) {
			*out = i |
			       (tokenizer_bool_member(r, n, path, "invert", false) ? TFMC_TOK_INVERT : 0u);
			return !r->failed;
		}
	}
	return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the behavior '%s'", name);
}

/* Appends a split by a regular expression: the match of a known one, by its exact string, else its automaton. */
static bool split_regex(struct tokenizer_reader *r, const char *path, const char *regex, uint32_t behavior)
{
	const char *why;
	for (size_t i = 0; i < TFMC_COUNT(known_regexes); i++)
		if (!strcmp(known_regexes[i].regex, regex))
			return add_splitter(r, path, known_regexes[i].kind, behavior, no_string);
	struct tokenizer_string automaton = pattern_compile(r->source->arena, regex, &why);
	if (automaton.n == 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the regular expression '%s': %s",
		                        regex, why);
	return add_splitter(r, path, TFMC_TOK_MATCH_PATTERN, behavior, automaton);
}

/* ByteLevel: an optional space before the text, GPT-2's regular expression, and then letters of bytes. */
static bool read_byte_level(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	int prefix = tokenizer_class_byte_prefix(r);
	bool add = tokenizer_bool_member(r, n, path, "add_prefix_space", true);
	if ((prefix < 0 ? add : prefix == 1) && !add_splitter(r, path, TFMC_TOK_PREFIX_SPACE, 0, no_string))
		return false;
	if (tokenizer_bool_member(r, n, path, "use_regex", true) &&
	    !split_regex(r, path, REGEX_GPT2, TFMC_TOK_ISOLATED))
		return false;
	r->byte_level = r->in_letters = true;
	return true;
}

/* Split by a string or a regular expression. */
static bool read_split(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct json_node *pattern = json_find(n, "pattern");
	const char *text = tokenizer_string_member(r, pattern, path, "String", NULL);
	const char *regex = tokenizer_string_member(r, pattern, path, "Regex", NULL);
	uint32_t behavior;
	if (r->failed || !read_behavior(r, n, path, "Removed", &behavior))
		return false;
	if (regex != NULL)
		return split_regex(r, path, regex, behavior);
	if (text == NULL || !*text)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no pattern");
	return add_splitter(r, path, TFMC_TOK_MATCH_TEXT, behavior, tokenizer_string(text));
}

/* Metaspace: spaces become marks, with a mark prepended by the scheme, then a split before each mark. The class of
   the configuration overrides whether one is prepended. */
static bool read_metaspace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *mark = tokenizer_string_member(r, n, path, "replacement", TOKENIZER_MARK);
	bool add = tokenizer_bool_member(r, n, path, "add_prefix_space", true);
	const char *scheme = tokenizer_string_member(r, n, path, "prepend_scheme", add ? "always" : "never");
	int prefix = tokenizer_class_prefix(r);
	scheme = prefix == 0 ? "never" : prefix == 1 && !strcmp(scheme, "never") ? "always" : scheme;
	uint32_t when = !strcmp(scheme, "always") ? 2 : !strcmp(scheme, "first") ? 1 : 0;
	if (!*mark || (when == 0 && strcmp(scheme, "never") != 0))
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "the scheme '%s'", scheme);
	r->desc->mark = tokenizer_string(mark);
	return add_splitter(r, path, TFMC_TOK_METASPACE, when, tokenizer_string(mark)) &&
	       (!tokenizer_bool_member(r, n, path, "split", true) ||
	        add_splitter(r, path, TFMC_TOK_MATCH_TEXT, TFMC_TOK_WITH_NEXT, tokenizer_string(mark)));
}

static bool read_delimiter(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_string_member(r, n, path, "delimiter", "");
	if (!*text)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "no delimiter");
	return add_splitter(r, path, TFMC_TOK_MATCH_TEXT, TFMC_TOK_REMOVED, tokenizer_string(text));
}

static bool read_punctuation(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	uint32_t behavior;
	return read_behavior(r, n, path, "Isolated", &behavior) &&
	       add_splitter(r, path, TFMC_TOK_MATCH_PUNCTUATION, behavior, no_string);
}

static bool read_digits(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	bool each = tokenizer_bool_member(r, n, path, "individual_digits", false);
	return add_splitter(r, path, TFMC_TOK_MATCH_DIGIT, each ? TFMC_TOK_ISOLATED : TFMC_TOK_CONTIGUOUS,
	                    no_string);
}

/* Components without members are mapped first, the others have a reader. */
bool tokenizer_read_splitter(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct tokenizer_component parts[] = {
	        {"ByteLevel", read_byte_level},
	        {"Split", read_split},
	        {"Metaspace", read_metaspace},
	        {"CharDelimiterSplit", read_delimiter},
	        {"Punctuation", read_punctuation},
	        {"Digits", read_digits},
	        {NULL, NULL},
	};
	if (tokenizer_is_type(n, "Whitespace"))
		return add_splitter(r, path, TFMC_TOK_SPLIT_WORDS, 0, no_string);
	if (tokenizer_is_type(n, "WhitespaceSplit"))
		return add_splitter(r, path, TFMC_TOK_MATCH_SPACE, TFMC_TOK_REMOVED, no_string);
	if (tokenizer_is_type(n, "BertPreTokenizer"))
		return add_splitter(r, path, TFMC_TOK_MATCH_SPACE, TFMC_TOK_REMOVED, no_string) &&
		       add_splitter(r, path, TFMC_TOK_MATCH_PUNCTUATION, TFMC_TOK_ISOLATED, no_string);
	return tokenizer_read_component(r, n, path, parts, "pretokenizers", tokenizer_read_splitter);
}
