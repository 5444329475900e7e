/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the status codes of objects (abi.h) and of this library.
 */
#include "tfmc_rt.h"

const char *tfmc_rt_status_text(int status)
{
	switch (status) {
#define X(name, value, text) \
	case value: return text;
		TFMC_STATUS_TABLE(X)
#undef X
	case TFMC_RT_E_MEMORY: return "memory could not be allocated";
	case TFMC_RT_E_FILE: return "the file cannot be read, or is not a weights file";
	case TFMC_RT_E_THREAD: return "a thread could not be started";
	case TFMC_RT_E_RECORD: return "the object's record is of another version or damaged";
	case TFMC_RT_E_NAME: return "no entry, tensor or dim has this name";
	case TFMC_RT_E_GENERATE: return "the object was not compiled for generation";
	case TFMC_RT_E_PROMPT: return "the prompt is empty, too long, or has an id outside of the vocabulary";
	case TFMC_RT_E_LOGITS: return "a logit is NaN or infinite, or no token may be chosen";
	case TFMC_RT_E_TEXT: return "the object carries no vocabulary, or the text is not UTF-8";
	case TFMC_RT_E_SAMPLE: return "a sampling option is outside of its range";
	case TFMC_RT_E_BEAM:
		return "a beam option is outside of its range (the beam: 1 to the session's batch)";
	case TFMC_RT_E_RULES:
		return "a constraint is out of its range: an id outside of the vocabulary, or an empty "
		       "sequence or "
		       "text";
	case TFMC_RT_E_SAVED: return "the saved sequence is damaged, cut off, or of another version";
	case TFMC_RT_E_MODEL_MISMATCH:
		return "the saved sequence belongs to another model or to other states";
	case TFMC_RT_E_SLOT: return "no sequence has this slot, it is named twice, or all slots are taken";
	default: return "unknown status code";
	}
}
