/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates dates with the compiled model. dates.h and dates.o come from
 *	tfmc examples/dates/model.yaml -o dates.o
 * and everything else from libtfmcrt; the compiler is not needed any more.
 *
 *	dates "the 3rd of March, 2021" 3/3/21      each argument
 *	dates < file                               each line
 */
#include <stdio.h>
#include <string.h>

#include "tfmc_rt.h"

#include "dates.h"

static int translate(struct tfmc_session *session, const char *text)
{
	char iso[64];
	int status = tfmc_generate_text(session, text, iso, sizeof(iso));
	if (status != TFMC_RT_OK) {
		fprintf(stderr, "%s: %s\n", text, tfmc_rt_status_text(status));
		return 1;
	}
	printf("%-28s -> %s\n", text, iso);
	return 0;
}

static int translate_lines(struct tfmc_session *session)
{
	char line[256];
	int failed = 0;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		failed |= translate(session, line);
	}
	return failed;
}

int main(int argc, char **argv)
{
	struct tfmc_model model = dates_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options), .batch = 1};
	struct tfmc_session *session;
	int status = tfmc_session_open(&model, &options, &session);
	if (status != TFMC_RT_OK) {
		fprintf(stderr, "dates: %s\n", tfmc_rt_status_text(status));
		return 1;
	}
	int failed = argc < 2 ? translate_lines(session) : 0;
	for (int i = 1; i < argc; i++)
		failed |= translate(session, argv[i]);
	tfmc_session_close(session);
	return failed;
}
