/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Section `quantize`: one format for everything that is usually quantized, or a mapping from path patterns to
 * formats. It applies to matrices of linears and tables of embed.
 */

#include "frontend/model/model.h"
#include "ir/support/glob.h"
#include "ir/support/strmap.h"

/* Paths that a single format does not quantize: quantization errors of positions and of expert routing are
 * large compared to the bytes saved. */
static const char *const left_out[] = {"*position*", "*.router.*"};

static bool read_format(struct frontend_model *m, const char *word, struct loc loc, enum ir_format *out)
{
	size_t n;
	const char *const *words = ir_format_options(&n);
	if (ir_format_from_option(word, out))
		return true;
	diag_error(m->cx, loc, DIAG_VALUE_TYPE, "quantize: no format is called '%.60s'%s", word,
	           did_you_mean_or_known(&m->arena, word, words, n));
	return false;
}

static bool add_rule(struct frontend_model *m, const char *pattern, struct loc loc, enum ir_format format,
                     bool used)
{
	return ARENA_ADDED(&m->arena, &m->quantize, (struct quantize_rule){pattern, loc, format, used});
}

/* Adds the rules for a single format. */
static bool add_default_rules(struct frontend_model *m, const char *word, struct loc loc)
{
	enum ir_format format;
	bool ok = read_format(m, word, loc, &format);
	for (size_t i = 0; ok && i < TFMC_COUNT(left_out); i++)
		ok = add_rule(m, left_out[i], loc, FORMAT_PLAIN, true);
	return ok && add_rule(m, "*", loc, format, true);
}

static bool add_pattern_rule(struct frontend_model *m, const struct yaml_pair *pair)
{
	enum ir_format format;
	if (!yaml_expect(m->cx, pair->value, YAML_SCALAR, "quantize: a pattern"))
		return false;
	if (pair->key->len > GLOB_BYTES_MAX) {
		diag_error(m->cx, pair->key->loc, DIAG_LIMIT, "the pattern has more than %d bytes",
		           GLOB_BYTES_MAX);
		return false;
	}
	return read_format(m, pair->value->text, pair->value->loc, &format) &&
	       add_rule(m, pair->key->text, pair->key->loc, format, false);
}

static bool set_profile(struct frontend_model *m, const struct yaml_node *node)
{
	if (!yaml_expect(m->cx, node, YAML_SCALAR, "quantize: profile"))
		return false;
	m->quantize.profile = node->text;
	m->quantize.profile_dir = m->doc.dir;
	m->quantize.profile_loc = node->loc;
	return true;
}

static bool read_section(struct frontend_model *m, const struct yaml_node *node)
{
	bool ok = true;
	if (node->kind == YAML_SCALAR && !node->null)
		return add_default_rules(m, node->text, node->loc);
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "quantize"))
		return false;
	for (size_t i = 0; i < node->n; i++)
		ok = (yaml_is(node->pairs[i].key, "profile") ? set_profile(m, node->pairs[i].value)
		                                             : add_pattern_rule(m, &node->pairs[i])) &&
		     ok;
	return ok;
}

bool model_read_quantize(struct frontend_model *m)
{
	const struct yaml_node *node = model_section(m, "quantize");
	struct model_quantize *q = &m->quantize;
	bool ok = node == NULL || read_section(m, node);
	if (m->options.unrounded) {
		*q = (struct model_quantize){0};
		return ok;
	}
	if (m->options.quantize != NULL) {
		q->n = 0;
		ok = add_default_rules(m, m->options.quantize, LOC_NONE) && ok;
	}
	if (m->options.profile != NULL) {
		q->profile = m->options.profile;
		q->profile_dir = NULL;
		q->profile_loc = LOC_NONE;
	}
	if (!ok || q->profile == NULL || q->n > 0)
		return ok;
	diag_error(
	        m->cx, q->profile_loc, DIAG_MISSING,
	        "the profile '%.200s' serves quantized formats, and none is requested: --quantize=q4, or a "
	        "format "
	        "under 'quantize'",
	        q->profile);
	return false;
}

const struct quantize_rule *model_quantize_rule(struct model_quantize *q, const char *path)
{
	for (size_t i = 0; i < q->n; i++)
		if (glob_match(q->items[i].pattern, path)) {
			q->items[i].used = true;
			return &q->items[i];
		}
	return NULL;
}

bool model_quantize_finish(struct frontend_model *m)
{
	bool ok = true;
	for (size_t i = 0; i < m->quantize.n; i++) {
		const struct quantize_rule *rule = &m->quantize.items[i];
		if (rule->used)
			continue;
		diag_error(m->cx, rule->loc, DIAG_MISSING,
		           "quantize: '%.200s' decides about no matrix of a linear and no table",
		           rule->pattern);
		ok = false;
	}
	if (ok && m->quantize.keeps_quants && !m->quantize.quantizes_floats)
		diag_warning(m->cx, m->options.quantize != NULL ? LOC_NONE : m->quantize.items[0].loc,
		             DIAG_UNSUPPORTED,
		             "quantize changes nothing: the weights are quantized in the files already, and "
		             "stay so");
	return ok;
}
