/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the object of a model without the runtime library: the how-to of the manual. */
#include <stdio.h>
#include <stdlib.h>

#include "own.h"

int main(void)
{
	struct own_context context;
	struct tfmc_config config = {.struct_size = sizeof(config), .arena_bytes = own_arena_size(1, 3, 1)};
	int32_t ids[3] = {1, 2, 3};
	float logits[3 * 50];
	struct own_run_args args = {
	        .B = 1, .S = 3, .ids = ids, .ids_count = 3, .logits = logits, .logits_count = 3 * 50};
	config.arena = aligned_alloc(64, (config.arena_bytes + 63) / 64 * 64);
	int32_t status = config.arena ? own_init(&context, &config) : OWN_E_NULL;
	if (status == OWN_OK)
		status = own_run(&context, &args);
	puts(own_status_text(status));
	if (status == OWN_OK)
		printf("%.4f\n", logits[0]);
	free(config.arena);
	return status;
}
