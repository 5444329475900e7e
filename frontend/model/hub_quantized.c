/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps `quantization_config` of a hub configuration to a value of `weights.packed`. A key in no rule may
 * change the meaning of the weights and is rejected by name.
 */
#include <string.h>

#include "frontend/model/hub.h"
#include "ir/support/glob.h"

/* Accepted keys (patterns) of a method and their accepted values; NULL: any value. */
static const struct rule {
	const char *method, *keys, *values; /* values: separated by spaces */
} rules[] = {
        {"gptq", "bits", "4 8"},
        {"gptq", "{checkpoint_format,quant_method}", "gptq gptq_v2"},
        {"gptq", "{is_marlin_format,lm_head}", "false"},
        {"gptq", "pack_dtype", "int32"},
        {"gptq",
         "{group_size,desc_act,sym,static_groups,true_sequential,damp*,meta.**,model_name_or_path,dataset*}",
         NULL},
        {"gptq",
         "{model_file_base_name,tokenizer,use_*,disable_exllama,exllama_config.**,max_input_length,version}",
         NULL},
        {"gptq", "{cache_block_outputs,batch_size,pad_token_id,block_name_to_quantize,model_seqlen,backend}",
         NULL},
        {"gptq", "{modules_in_block_to_quantize*,module_name_preceding_first_block*,modules_to_not_convert*}",
         NULL},
        {"awq", "bits", "4"},
        {"awq", "quant_method", "awq"},
        {"awq", "version", "gemm GEMM"},
        {"awq", "do_fuse", "false"},
        {"awq",
         "{group_size,zero_point,backend,fuse_max_seq_len,modules_to_not_convert*,modules_to_fuse*,exllama_"
         "config*}",
         NULL},
        {"mxfp4", "quant_method", "mxfp4"},
        {"mxfp4", "modules_to_not_convert*", NULL},
        {"mxfp4", "dequantize", "false"},
        {"compressed-tensors", "quant_method", "compressed-tensors"},
        {"compressed-tensors", "format", "int-quantized pack-quantized"},
        {"compressed-tensors", "quantization_status", "compressed frozen"},
        {"compressed-tensors", "{version,ignore,global_compression_ratio}", NULL},
        {"compressed-tensors", "config_groups.*.targets", NULL},
        {"compressed-tensors", "config_groups.*.format", "int-quantized pack-quantized"},
        {"compressed-tensors", "config_groups.*.weights.num_bits", "4 8"},
        {"compressed-tensors", "config_groups.*.weights.type", "int"},
        {"compressed-tensors", "config_groups.*.weights.strategy", "tensor channel group"},
        {"compressed-tensors", "config_groups.*.weights.symmetric", "true"},
        {"compressed-tensors", "config_groups.*.weights.dynamic", "false"},
        {"compressed-tensors", "config_groups.*.weights.actorder", "false true weight group static dynamic"},
        {"compressed-tensors", "config_groups.*.weights.{group_size,observer*,observer_kwargs.**}", NULL},
        /* Dynamic quantization of activations approximates what is computed here: ignored. */
        {"compressed-tensors", "config_groups.*.input_activations.dynamic", "true"},
        {"compressed-tensors", "config_groups.*.input_activations.num_bits", "8"},
        {"compressed-tensors",
         "config_groups.*.input_activations.{type,strategy,symmetric,group_size,observer*,actorder}", NULL},
        {"compressed-tensors", "config_groups.*.input_activations.observer_kwargs.**", NULL},
};

static bool is_listed_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = strstr(words, word); at != NULL && n > 0; at = strstr(at + 1, word))
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return true;
	return false;
}

static const char *scalar_string(struct arena *a, const struct json_node *v)
{
	switch (v->kind) {
	case JSON_NODE_STRING: return v->text;
	case JSON_NODE_BOOL: return v->i ? "true" : "false";
	case JSON_NODE_INT: return arena_printf(a, "%lld", (long long)v->i);
	case JSON_NODE_REAL: return arena_printf(a, "%g", v->f);
	case JSON_NODE_NULL: return "null";
	case JSON_NODE_ARRAY: return "a list";
	case JSON_NODE_OBJECT: return "an object";
	}
	return "";
}

/* The first rule that matches a key; NULL: none. */
static const struct rule *find_rule(const char *method, const char *key)
{
	for (size_t i = 0; i < TFMC_COUNT(rules); i++)
		if (strcmp(rules[i].method, method) == 0 && glob_match(rules[i].keys, key))
			return &rules[i];
	return NULL;
}

/* Checks all keys of an object; path: prefix of its keys. */
static bool check_keys(struct model_document *d, const struct hub_config *c, const char *method,
                       const char *path, const struct json_node *object)
{
	for (size_t i = 0; i < object->n; i++) {
		const struct json_node *v = &object->items[i];
		const char *key = arena_printf(d->arena, "%s%s", path, object->keys[i]);
		const struct rule *rule = find_rule(method, key);
		if (v->kind == JSON_NODE_NULL || (v->kind == JSON_NODE_OBJECT && v->n == 0) ||
		    (rule != NULL &&
		     (rule->values == NULL || is_listed_word(rule->values, scalar_string(d->arena, v)))))
			continue;
		if (v->kind == JSON_NODE_OBJECT && rule == NULL) {
			if (!check_keys(d, c, method, arena_printf(d->arena, "%s.", key), v))
				return false;
			continue;
		}
		const char *full_key = arena_printf(d->arena, "quantization_config.%s", key);
		diag_error(d->cx, hub_key_loc(c, full_key), DIAG_UNSUPPORTED,
		           "not supported yet: '%s' is %.60s in %s%s", full_key, scalar_string(d->arena, v),
		           c->name, rule == NULL ? "; it may change what the weights mean" : "");
		return false;
	}
	return true;
}

const char *hub_weight_packing(struct model_document *d, const struct hub_config *c)
{
	const struct json_node *q = json_find(c->root, "quantization_config");
	const struct json_node *named = json_find(q, "quant_method"),
	                       *form = json_find(q, "checkpoint_format");
	if (q == NULL || q->kind != JSON_NODE_OBJECT || q->n == 0 || strcmp(q->keys[0], "none") == 0)
		return "none";
	const char *method = named != NULL && named->kind == JSON_NODE_STRING ? named->text : NULL;
	bool known = method != NULL && find_rule(method, "quant_method") != NULL;
	if (!known)
		diag_error(d->cx, hub_key_loc(c, "quantization_config"), DIAG_UNSUPPORTED,
		           "not supported yet: quantized weights%s%.60s%s (gptq, awq, mxfp4 and "
		           "compressed-tensors are); use the "
		           "folder of the model before it was quantized",
		           method != NULL ? " ('" : "", method != NULL ? method : "",
		           method != NULL ? "')" : "");
	if (!known || !check_keys(d, c, method, "", q))
		return NULL;
	if (strcmp(method, "compressed-tensors") == 0)
		return "compressed";
	return form != NULL && form->kind == JSON_NODE_STRING ? form->text : method;
}
