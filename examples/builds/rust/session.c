/* SPDX-License-Identifier: Apache-2.0 */
/* The model's record is a struct of the C headers: Rust sees a session only. */
#include <tfmc_rt.h>

#include "dates.h"

int dates_open(struct tfmc_session **out)
{
	struct tfmc_model model = dates_model();
	return tfmc_session_open(&model, NULL, out);
}
