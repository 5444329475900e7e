/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What classes of the library do beside the files: vocab.json or vocab.txt become the members of a
 * tokenizer.json, and what stands around the text follows from the class and its flags.
 */
#include "frontend/tokenizer_files/class.h"

#include <string.h>

/* clang-format off: one member on each line */
#define BERT_NORMALIZER "{\"type\":\"BertNormalizer\"}"
#define BERT_SPLITTER   "{\"type\":\"BertPreTokenizer\"}"
#define WORDPIECE       "{\"type\":\"WordPiece\"}"
#define BPE             "{\"type\":\"BPE\"}"
#define BPE_WORDS       "{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}"
#define NFC             "{\"type\":\"NFC\"}"
#define BYTE_LEVEL      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define BYTES_ALONE     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPLIT(regex, behavior, invert)                                                       \
	"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"" behavior \
	"\",\"invert\":" invert "}"
#define QWEN2_SPLITTER                                                                                \
	"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(                                           \
	        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "     \
	        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+", \
	        "Isolated", "false") "," BYTES_ALONE "]}"
#define CLIP_SPLITTER                                                                                       \
	"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(                                                 \
	        "<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{" \
	        "N}]|[^\\\\s\\\\p{L}\\\\p{N}]+",                                                            \
	        "Removed", "true") "," BYTE_LEVEL "]}"
#define CLIP_NORMALIZER                                                             \
	"{\"type\":\"Sequence\",\"normalizers\":[" NFC                              \
	",{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" " \
	"\"},{\"type\":\"Lowercase\"}]}"
#define MBART_LANGUAGES                                                                                    \
	"ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV " \
	"my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN"
#define MBART50_LANGUAGES                                                                                  \
	"af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX " \
	"sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
/* clang-format on */

#define CLASS(names, files, around, normalizer, splitter, model, bos, eos, unk, sep, pad, cls, mask, prefix, \
              strips, languages)                                                                             \
	{names,  files,  around,   normalizer, splitter, model, {bos, eos, unk, sep, pad, cls, mask},        \
	 prefix, strips, languages},
#define TYPE(types, name)
static const struct tokenizer_class classes[] = {
#include "frontend/tokenizer_files/classes.def"
};

#define CLASS(names, files, around, normalizer, splitter, model, bos, eos, unk, sep, pad, cls, mask, prefix, \
              strips, languages)
#define TYPE(types, name) {types, name},
static const struct {
	const char *types, *name;
} types[] = {
#include "frontend/tokenizer_files/classes.def"
};

/* Whether a list of words, separated by blanks, has the first n characters of a text as one. */
static bool has_word(const char *list, const char *text, size_t n)
{
	for (const char *at = list; n != 0 && (at = strstr(at, text)) != NULL; at++)
		if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return true;
	return false;
}

const struct tokenizer_class *tokenizer_class_find(const char *name)
{
	static const char fast[] = "Fast";
	char plain[64];
	size_t n = strlen(name), end = sizeof(fast) - 1;
	if (n > end && strcmp(name + n - end, fast) == 0)
		n -= end;
	if (n == 0 || n >= sizeof(plain))
		return NULL;
	memcpy(plain, name, n);
	plain[n] = '\0';
	for (size_t i = 0; i < TFMC_COUNT(classes); i++)
		if (has_word(classes[i].names, plain, n))
			return &classes[i];
	return NULL;
}

const char *tokenizer_class_of_type(const char *type)
{
	for (size_t i = 0; i < TFMC_COUNT(types); i++)
		if (has_word(types[i].types, type, strlen(type)))
			return types[i].name;
	return NULL;
}

/* ---- what stands around the text ---- */

static uint32_t role_id(const struct tokenizer_reader *r, enum tokenizer_role role)
{
	const char *text = r->config->roles[role];
	return text != NULL ? tokenizer_added_id(r, text) : TFMC_TOK_NONE;
}

static void put(struct tokenizer_desc *d, enum tfmc_tok_item_kind kind, uint32_t id, uint32_t type)
{
	bool missing = kind == TFMC_TOK_TOKEN && id == TFMC_TOK_NONE;
	if (!missing && d->n_items < TFMC_TOK_ITEMS_MAX)
		d->items[d->n_items++] = (struct tfmc_tok_item){(uint32_t)kind, id, type};
}

static bool needs(struct tokenizer_reader *r, enum tokenizer_role role, const char *name)
{
	return role_id(r, role) != TFMC_TOK_NONE ||
	       tokenizer_reject(r, name, "not supported yet: a vocabulary without it");
}

/* cls A sep, then B sep; with another sep between them, and all of type 0, as Roberta has it. */
static bool around_cls(struct tokenizer_reader *r, enum tokenizer_role first, enum tokenizer_role last,
                       bool roberta)
{
	struct tokenizer_desc *d = r->desc;
	if (!needs(r, first, "cls_token") || !needs(r, last, "sep_token"))
		return false;
	d->n_items = 0;
	for (int pair = 0; pair < 2; pair++) {
		put(d, TFMC_TOK_TOKEN, role_id(r, first), 0);
		put(d, TFMC_TOK_TEXT_A, 0, 0);
		put(d, TFMC_TOK_TOKEN, role_id(r, last), 0);
		d->n_single = pair ? d->n_single : d->n_items;
		if (!pair)
			continue;
		if (roberta)
			put(d, TFMC_TOK_TOKEN, role_id(r, last), 0);
		put(d, TFMC_TOK_TEXT_B, 0, roberta ? 0 : 1);
		put(d, TFMC_TOK_TOKEN, role_id(r, last), roberta ? 0 : 1);
	}
	return true;
}

/* Ids in front of A B and behind them. */
static void around_both(struct tokenizer_desc *d, const uint32_t *front, size_t n_front,
                        const uint32_t *behind, size_t n_behind, uint32_t type)
{
	d->n_items = 0;
	for (int pair = 0; pair < 2; pair++) {
		for (size_t i = 0; i < n_front; i++)
			put(d, TFMC_TOK_TOKEN, front[i], 0);
		put(d, TFMC_TOK_TEXT_A, 0, 0);
		if (pair)
			put(d, TFMC_TOK_TEXT_B, 0, type);
		for (size_t i = 0; i < n_behind; i++)
			put(d, TFMC_TOK_TOKEN, behind[i], pair ? type : 0);
		d->n_single = pair ? d->n_single : d->n_items;
	}
}

static bool around_language(struct tokenizer_reader *r, enum tokenizer_template around)
{
	const struct tokenizer_config *c = r->config;
	bool nllb = strcmp(c->class->names, "NllbTokenizer") == 0;
	const char *language = c->src_lang != NULL ? c->src_lang : nllb ? "eng_Latn" : "en_XX";
	uint32_t ids[2] = {tokenizer_added_id(r, language), role_id(r, TOKENIZER_EOS)};
	if (ids[0] == TFMC_TOK_NONE || ids[1] == TFMC_TOK_NONE)
		return tokenizer_reject(r, "src_lang",
		                        "not supported yet: '%s', which is not in the vocabulary", language);
	if (around == TOKENIZER_T_BEHIND || (nllb && c->legacy_language == 1)) {
		const uint32_t behind[2] = {ids[1], ids[0]};
		around_both(r->desc, NULL, 0, behind, 2, 0);
	} else {
		around_both(r->desc, ids, 1, ids + 1, 1, 0);
	}
	return true;
}

/* The language by its code, as its token has it. */
static bool around_speech(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	const char *names[4] = {"<|startoftranscript|>"};
	uint32_t front[4], end = role_id(r, TOKENIZER_EOS);
	size_t n = 1;
	if (tokenizer_added_id(r, names[0]) == TFMC_TOK_NONE)
		return true; /* a vocabulary for text */
	if (c->language != NULL)
		names[n++] = arena_printf(r->source->arena, "<|%s|>", c->language);
	if (c->task != NULL)
		names[n++] = arena_printf(r->source->arena, "<|%s|>", c->task);
	if (c->timestamps != 1)
		names[n++] = "<|notimestamps|>";
	for (size_t i = 0; i < n; i++) {
		front[i] = names[i] != NULL ? tokenizer_added_id(r, names[i]) : TFMC_TOK_NONE;
		if (front[i] == TFMC_TOK_NONE)
			return tokenizer_reject(r, "language, task",
			                        "not supported yet: '%s', which is not in the vocabulary",
			                        names[i]);
	}
	around_both(r->desc, front, n, &end, 1, 1);
	return true;
}

/* bos and eos as the flags say; without flags nothing stands around the text. */
static bool around_flags(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	uint32_t bos = c->add_bos == 1 ? role_id(r, TOKENIZER_BOS) : TFMC_TOK_NONE;
	uint32_t eos = c->add_eos == 1 ? role_id(r, TOKENIZER_EOS) : TFMC_TOK_NONE;
	tokenizer_bos_eos(r->desc, bos, eos);
	return true;
}

/* A eos, A eos B eos */
static bool around_end(struct tokenizer_reader *r)
{
	if (!needs(r, TOKENIZER_EOS, "eos_token"))
		return false;
	tokenizer_bos_eos(r->desc, TFMC_TOK_NONE, role_id(r, TOKENIZER_EOS));
	for (size_t i = 0; i < r->desc->n_items; i++)
		r->desc->items[i].type = 0;
	return true;
}

static bool around(struct tokenizer_reader *r, enum tokenizer_template kind)
{
	switch (kind) {
	case TOKENIZER_T_FLAGS: return around_flags(r);
	case TOKENIZER_T_BERT: return around_cls(r, TOKENIZER_CLS, TOKENIZER_SEP, false);
	case TOKENIZER_T_ROBERTA: return around_cls(r, TOKENIZER_CLS, TOKENIZER_SEP, true);
	case TOKENIZER_T_CLIP: return around_cls(r, TOKENIZER_BOS, TOKENIZER_EOS, true);
	case TOKENIZER_T_EOS: return around_end(r);
	case TOKENIZER_T_LANGUAGE:
	case TOKENIZER_T_BEHIND: return around_language(r, kind);
	case TOKENIZER_T_WHISPER: return around_speech(r);
	}
	return false;
}

/* A tokenizer.json without a template says that bos and eos are not added, and may lack others. */
bool tokenizer_class_around(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	if (c == NULL || c->class == NULL || (!r->lists && c->class->around == TOKENIZER_T_FLAGS))
		return true;
	bool cls = c->class->around == TOKENIZER_T_BERT || c->class->around == TOKENIZER_T_ROBERTA;
	if (!r->lists && cls &&
	    (role_id(r, TOKENIZER_CLS) == TFMC_TOK_NONE || role_id(r, TOKENIZER_SEP) == TFMC_TOK_NONE))
		return true;
	return around(r, c->class->around);
}

bool tokenizer_class_language(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	bool decides = c != NULL && c->class != NULL &&
	               (c->class->around == TOKENIZER_T_LANGUAGE || c->class->around == TOKENIZER_T_BEHIND ||
	                c->class->around == TOKENIZER_T_WHISPER);
	return !decides || around(r, c->class->around);
}

int tokenizer_class_prefix(const struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	if (c == NULL || c->class == NULL)
		return -1;
	return c->prefix_space < 0 && r->lists ? c->class->prefix_space : c->prefix_space;
}

bool tokenizer_class_roles(struct tokenizer_reader *r)
{
	struct tokenizer_desc *d = r->desc;
	d->bos = role_id(r, TOKENIZER_BOS);
	d->eos = role_id(r, TOKENIZER_EOS);
	d->pad = role_id(r, TOKENIZER_PAD);
	d->mask = role_id(r, TOKENIZER_MASK);
	return true;
}

/* ---- files that are lists ---- */

/* The members of an object of the table, further members behind them. */
static struct json_node *members(struct arena *a, const struct json_node *from, size_t more)
{
	struct json_node *o = ARENA_NEW(a, struct json_node);
	struct json_node *items = ARENA_ARRAY(a, struct json_node, from->n + more);
	const char **keys = ARENA_ARRAY(a, const char *, from->n + more);
	if (o == NULL || items == NULL || keys == NULL)
		return NULL;
	for (size_t i = 0; i < from->n; i++) {
		items[i] = from->items[i];
		keys[i] = from->keys[i];
	}
	*o = (struct json_node){.kind = JSON_NODE_OBJECT, .n = from->n, .items = items, .keys = keys};
	return o;
}

/* Room was made by members(). */
static void add_member(struct json_node *o, const char *key, const struct json_node *value)
{
	((struct json_node *)(uintptr_t)o->items)[o->n] = *value;
	((const char **)(uintptr_t)o->keys)[o->n++] = key;
}

enum tfmc_status tokenizer_from_class(const struct tokenizer_source *s, const struct json_node *vocab,
                                      const struct json_node *merges, struct tokenizer_packed *out)
{
	const struct tokenizer_class *class = s->config->class;
	const struct json_source src = {s->name, s->loc, DIAG_INTERNAL, 0};
	const char *unknown = s->config->roles[TOKENIZER_UNK];
	const char *text = arena_printf(
	        s->arena, "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":{\"type\":\"%s\"}}",
	        class->normalizer, class->splitter, merges != NULL ? "ByteLevel" : "WordPiece");
	if (text == NULL)
		return TFMC_NO_MEMORY;
	const struct json_node *parts = json_parse(s->arena, s->cx, &src, text, strlen(text));
	const struct json_node *kind = json_parse(s->arena, s->cx, &src, class->model, strlen(class->model));
	struct json_node *root = parts != NULL ? members(s->arena, parts, 1) : NULL;
	struct json_node *model = kind != NULL ? members(s->arena, kind, 3) : NULL;
	if (root == NULL || model == NULL)
		return TFMC_NO_MEMORY;
	add_member(model, "vocab", vocab);
	if (merges != NULL)
		add_member(model, "merges", merges);
	if (unknown != NULL)
		add_member(model, "unk_token",
		           &(struct json_node){.kind = JSON_NODE_STRING, .text = unknown});
	add_member(root, "model", model);
	return tokenizer_from_tree(s, root, out);
}
