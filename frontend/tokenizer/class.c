/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Behavior of the tokenizer classes of transformers that files do not describe: vocab.json or vocab.txt become members
 * of a tokenizer.json; the template follows from the class and its flags. The members are JSON text, so that the reader
 * of tokenizer.json serves both. A role (bos, cls, mask, ..) is the use of a special token, whose text is that of the
 * configuration, else of the class; its id is NONE where the vocabulary lacks it. r->lists: the vocabulary comes from
 * files of its own, else it and the template may be in a tokenizer.json.
 */
#include "frontend/tokenizer/json.h"

#include <string.h>

#include "ir/support/strmap.h"

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

#define CLASS(names, files, template_names, normalizer, splitter, model, bos, eos, unk, sep, pad, cls, mask, \
              prefix, reads, strips, languages)                                                              \
	{names,  files, template_names, normalizer, splitter, model, {bos, eos, unk, sep, pad, cls, mask},   \
	 prefix, reads, strips,         languages},
#define TYPE(types, with_json, without)
static const struct tokenizer_class classes[] = {
#include "frontend/tokenizer/classes.def"
};

#define CLASS(names, files, template_names, normalizer, splitter, model, bos, eos, unk, sep, pad, cls, mask, \
              prefix, reads, strips, languages)
#define TYPE(types, with_json, without) {types, with_json, without},
static const struct {
	const char *types, *with_json, *without;
} types[] = {
#include "frontend/tokenizer/classes.def"
};

const struct tokenizer_class *tokenizer_class_find(const char *name)
{
	static const char fast[] = "Fast";
	size_t n = strlen(name), end = sizeof(fast) - 1;
	/* XTokenizerFast differs from XTokenizer in speed alone */
	if (n > end && strcmp(name + n - end, fast) == 0)
		n -= end;
	for (size_t i = 0; i < TFMC_COUNT(classes); i++)
		if (list_has_word(classes[i].names, name, n))
			return &classes[i];
	return NULL;
}

/* A row may have no class ("") with a tokenizer.json, or without; then a later row may have one. */
const char *tokenizer_class_of_type(const char *type, bool has_json)
{
	for (size_t i = 0; i < TFMC_COUNT(types); i++) {
		const char *name = has_json ? types[i].with_json : types[i].without;
		if (name[0] != '\0' && list_has_word(types[i].types, type, strlen(type)))
			return name;
	}
	return NULL;
}

/* ---- templates ---- */

/* Id of a special token by its role, or NONE. */
static uint32_t role_id(const struct tokenizer_reader *r, enum tokenizer_role role)
{
	const char *text = r->config->roles[role];
	return text != NULL ? tokenizer_added_id(r, text) : TFMC_TOK_NONE;
}

/* Templates for one text and for a pair. */
static const char *const templates[][2] = {
        [TOKENIZER_T_FLAGS] = {TOKENIZER_TEMPLATE_ENDS},
        [TOKENIZER_T_BERT] = {TOKENIZER_TEMPLATE_BERT},
        [TOKENIZER_T_ROBERTA] = {TOKENIZER_TEMPLATE_ROBERTA},
        [TOKENIZER_T_CLIP] = {"bos_token $A eos_token", "bos_token $A eos_token eos_token $B eos_token"},
        [TOKENIZER_T_EOS] = {"$A eos_token", "$A eos_token $B eos_token"},
        [TOKENIZER_T_LANGUAGE] = {"src_lang $A eos_token", "src_lang $A $B eos_token"},
        [TOKENIZER_T_LANGUAGE_LAST] = {"$A eos_token src_lang", "$A $B eos_token src_lang"},
        [TOKENIZER_T_WHISPER] = {"start language task timestamps $A eos_token",
                                 "start language task timestamps $A $B:1 eos_token:1"},
};

/* Names of a template and their ids, ended by an entry of zeros. */
struct template_names {
	struct tokenizer_reader *r;
	const char *single; /* the template of one text; that of a pair has the same names */
	struct tokenizer_named_id names[12];
	size_t n;
};

/* Adds a name of the template and the id of its text; NONE (text NULL, or not in the vocabulary) leaves the item out of
   the template, and is an error if needed: ids without the token would be wrong. False after a diagnostic. A name that
   is not in the template for one text is skipped, as the one for a pair has the same names. */
static bool add_name(struct template_names *a, const char *name, const char *text, bool needed)
{
	if (strstr(a->single, name) == NULL)
		return true;
	uint32_t id = text != NULL ? tokenizer_added_id(a->r, text) : TFMC_TOK_NONE;
	a->names[a->n++] = (struct tokenizer_named_id){name, id};
	if (!needed || id != TFMC_TOK_NONE)
		return true;
	if (text != NULL)
		return tokenizer_reject(a->r, TOKENIZER_UNSUPPORTED, name,
		                        "'%s', which is not in the vocabulary", text);
	return tokenizer_reject(a->r, TOKENIZER_UNSUPPORTED, name, "a vocabulary without it");
}

/* Adds Whisper's names; language and task by their tokens <|en|>, <|transcribe|>, left out where the configuration has
   none; <|notimestamps|> unless timestamps are predicted. */
static bool add_whisper_names(struct template_names *a)
{
	const struct tokenizer_config *c = a->r->config;
	struct arena *arena = a->r->source->arena;
	const char *language = c->language != NULL ? arena_printf(arena, "<|%s|>", c->language) : NULL;
	const char *task = c->task != NULL ? arena_printf(arena, "<|%s|>", c->task) : NULL;
	return add_name(a, "start", "<|startoftranscript|>", true) &&
	       add_name(a, "language", language, language != NULL) &&
	       add_name(a, "task", task, task != NULL) &&
	       (c->timestamps == 1 || add_name(a, "timestamps", "<|notimestamps|>", true));
}

/* Sets the template of this kind with the ids of the configuration. bos and eos of FLAGS are in it only if
 * add_bos_token and add_eos_token are true, and may be absent; other kinds need all their tokens. Without src_lang the
 * class has a default. NLLB has its language last only with legacy_behaviour. False after a diagnostic. */
static bool set_template(struct tokenizer_reader *r, enum tokenizer_template kind)
{
	const struct tokenizer_config *c = r->config;
	const char *const *roles = c->roles;
	bool nllb = strcmp(c->class->names, "NllbTokenizer") == 0, flags = kind == TOKENIZER_T_FLAGS;
	if (kind == TOKENIZER_T_WHISPER && tokenizer_added_id(r, "<|startoftranscript|>") == TFMC_TOK_NONE)
		return true; /* a text-only vocabulary */
	if (kind == TOKENIZER_T_LANGUAGE && nllb && c->legacy_language == 1)
		kind = TOKENIZER_T_LANGUAGE_LAST;
	struct template_names a = {.r = r, .single = templates[kind][0]};
	if (!add_name(&a, "src_lang",
	              c->src_lang != NULL ? c->src_lang
	              : nllb              ? "eng_Latn"
	                                  : "en_XX",
	              true) ||
	    !add_name(&a, "cls_token", roles[TOKENIZER_CLS], true) ||
	    !add_name(&a, "sep_token", roles[TOKENIZER_SEP], true) ||
	    !add_name(&a, "bos_token", flags && c->add_bos != 1 ? NULL : roles[TOKENIZER_BOS], !flags) ||
	    !add_name(&a, "eos_token", flags && c->add_eos != 1 ? NULL : roles[TOKENIZER_EOS],
	              !flags && kind != TOKENIZER_T_WHISPER) ||
	    (kind == TOKENIZER_T_WHISPER && !add_whisper_names(&a)))
		return false;
	tokenizer_set_template(r->desc, templates[kind][0], templates[kind][1], a.names);
	return true;
}

/* Without a template, tokenizer.json means that bos and eos are not added, so the flags of the class apply to
 * vocabulary lists alone; a template of cls and sep needs both in the vocabulary. */
bool tokenizer_class_set_template(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	if (c == NULL || c->class == NULL ||
	    (r->lists == NULL && c->class->template_kind == TOKENIZER_T_FLAGS))
		return true;
	bool cls =
	        c->class->template_kind == TOKENIZER_T_BERT || c->class->template_kind == TOKENIZER_T_ROBERTA;
	if (r->lists == NULL && cls &&
	    (role_id(r, TOKENIZER_CLS) == TFMC_TOK_NONE || role_id(r, TOKENIZER_SEP) == TFMC_TOK_NONE))
		return true;
	return set_template(r, c->class->template_kind);
}

/* Classes with languages, Whisper's tasks, or cls and sep build their template from the configuration, whatever
 * the file has, as in transformers; those with cls and sep only if the vocabulary has both. */
bool tokenizer_class_override_template(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	bool is_known = c != NULL && c->class != NULL;
	bool ends = is_known &&
	            (c->class->template_kind == TOKENIZER_T_BERT ||
	             c->class->template_kind == TOKENIZER_T_ROBERTA) &&
	            role_id(r, TOKENIZER_CLS) != TFMC_TOK_NONE && role_id(r, TOKENIZER_SEP) != TFMC_TOK_NONE;
	bool decides = ends || (is_known && (c->class->template_kind == TOKENIZER_T_LANGUAGE ||
	                                     c->class->template_kind == TOKENIZER_T_LANGUAGE_LAST ||
	                                     c->class->template_kind == TOKENIZER_T_WHISPER));
	return !decides || set_template(r, c->class->template_kind);
}

/* Llama's class (the one with its own SentencePiece ids that reads add_prefix_space) follows tokenizer.json if the
 * files do not have the flag; the others have a default of their own. */
int tokenizer_class_prefix(const struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	if (c == NULL || c->class == NULL || !c->class->reads_prefix)
		return -1;
	bool is_llama = c->class->files == TOKENIZER_F_PIECES;
	return c->prefix_space >= 0 || (is_llama && r->lists == NULL) ? c->prefix_space
	                                                              : c->class->prefix_space;
}

int tokenizer_class_byte_prefix(const struct tokenizer_reader *r)
{
	bool is_bytes =
	        r->config != NULL && r->config->class != NULL && r->config->class->files == TOKENIZER_F_BPE;
	return is_bytes ? tokenizer_class_prefix(r) : -1;
}

bool tokenizer_class_is_bert(const struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	return c != NULL && c->class != NULL && strcmp(c->class->normalizer, BERT_NORMALIZER) == 0;
}

void tokenizer_class_set_special_ids(struct tokenizer_reader *r)
{
	struct tokenizer_desc *d = r->desc;
	d->bos = role_id(r, TOKENIZER_BOS);
	d->eos = role_id(r, TOKENIZER_EOS);
	d->pad = role_id(r, TOKENIZER_PAD);
	d->mask = role_id(r, TOKENIZER_MASK);
}

/* ---- vocabulary lists ---- */

/* Writes the members of the class as a tokenizer.json without a vocabulary, and reads that with the lists. The text is
 * made of constants, so it can fail to be parsed only without memory. A list of merges means BPE, with letters of
 * bytes. */
enum tfmc_status tokenizer_from_lists(const struct tokenizer_source *s, const struct tokenizer_lists *lists,
                                      struct tokenizer_packed *out)
{
	const struct json_source src = {s->name, s->loc, DIAG_INTERNAL, 0};
	const struct tokenizer_class *class = s->config != NULL ? s->config->class : lists->class;
	struct tokenizer_lists local = *lists;
	if (s->config != NULL)
		local.unknown = s->config->roles[TOKENIZER_UNK];
	const char *text = arena_printf(
	        s->arena,
	        "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":%s,\"decoder\":{\"type\":\"%s\"}%s}",
	        lists->normalizer != NULL ? lists->normalizer : class->normalizer, class->splitter,
	        class->model, lists->merges != NULL ? "ByteLevel" : "WordPiece", lists->more);
	const struct json_node *root =
	        text != NULL ? json_parse(s->arena, s->cx, &src, text, strlen(text)) : NULL;
	return root != NULL ? tokenizer_from_tree(s, root, &local, out) : TFMC_NO_MEMORY;
}
