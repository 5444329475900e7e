/* SPDX-License-Identifier: Apache-2.0 */
/* Two models in one program: the how-to of the manual. */
#include <stdio.h>

#include <tfmc_rt.h>

#include "dates.h"
#include "names.h"

static int say(const struct tfmc_model *model, const char *prompt)
{
	struct tfmc_session *session;
	char text[256];
	int status = tfmc_session_open(model, NULL, &session);
	if (status == TFMC_RT_OK)
		status = tfmc_generate_text(session, prompt, text, sizeof(text));
	puts(status == TFMC_RT_OK ? text : tfmc_rt_status_text(status));
	tfmc_session_close(session);
	return status != TFMC_RT_OK;
}

int main(void)
{
	struct tfmc_model dates = dates_model(), names = names_model();
	return say(&dates, "3 Mar 2021") | say(&names, "thurga");
}
