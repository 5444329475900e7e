/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text from a model that is divided among the processes of an MPI job. model.h, model.o and model.0.weights,
 * model.1.weights, .. come from
 *
 *	tfmc examples/hub/tales --name=model --shards=2 -o model.o
 *
 *	mpirun -n 2 ./ranks "Once there was a mouse"
 *
 * The three lines marked "ranks" are all that several processes need: everything else, and every function that the
 * program calls on its session, is as for one process. They run in every process; what follows runs in rank 0 alone.
 */
#include <stdio.h>
#include <string.h>

#include "tfmc_mpi.h"
#include "tfmc_rt.h"
#include "tfmc_tokenizer.h"

#include "model.h"

#define IDS_MAX 4096

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "ranks: %s: %s\n", what, why);
	return 1;
}

static int write_text(void *out, const char *text, uint64_t bytes)
{
	return fwrite(text, 1, bytes, out) != bytes || fflush(out);
}

static int on_token(void *stream, int32_t id)
{
	return tfmc_token_stream_add(stream, id) != TFMC_TOKENIZER_OK;
}

/* Writes the likeliest continuation of a text. */
static int talk(struct tfmc_session *session, const char *text)
{
	static int32_t ids[IDS_MAX], out[IDS_MAX];
	struct tfmc_token_stream stream;
	struct tfmc_generate_options options = {
	        .struct_size = sizeof(options), .max_new_tokens = 40, .on_token = on_token, .user = &stream};
	struct tfmc_tokenizer *tokenizer;
	uint64_t bytes, n, n_out;
	const void *packed = tfmc_record_tokenizer(tfmc_session_record(session), &bytes);
	int status = tfmc_tokenizer_open(packed, bytes, &tokenizer);
	if (status)
		return complain("tokenizer", tfmc_tokenizer_status_text(status));
	tfmc_token_stream_begin(&stream, tokenizer, TFMC_DETOKENIZE_AFTER, write_text, stdout);
	status =
	        tfmc_tokenizer_encode(tokenizer, text, strlen(text), TFMC_TOKENIZE_SPECIAL, ids, IDS_MAX, &n);
	if (status)
		complain("the text", tfmc_tokenizer_status_text(status));
	else if ((status = tfmc_generate(session, &options, ids, n, NULL, 0, out, IDS_MAX, &n_out)) != 0)
		complain("generation", tfmc_session_status_text(session, status));
	(void)tfmc_token_stream_end(&stream);
	puts("");
	tfmc_tokenizer_close(tokenizer);
	return status != 0;
}

int main(int argc, char **argv)
{
	struct tfmc_model model = model_model();
	struct tfmc_session_options options = {.struct_size = sizeof(options), .batch = 1};
	struct tfmc_session *session = NULL;
	struct tfmc_mpi *mpi;
	char weights[4096], why[256] = "";
	if (argc != 2)
		return complain("usage", "mpirun -n RANKS ranks TEXT");
	if (tfmc_mpi_open(NULL, &mpi)) /* ranks: 1 */
		return complain("MPI", "not started");
	options.ranks = tfmc_mpi_ranks(mpi); /* ranks: 2 */
	if (!tfmc_weights_find_rank(model.record, options.ranks->rank, weights, sizeof(weights)))
		options.weights_path = weights;
	options.message = why;
	options.message_bytes = sizeof(why);
	int failed = tfmc_session_open(&model, &options, &session) != 0;
	if (failed)
		complain("session", why);
	else if (options.ranks->rank > 0)
		failed = tfmc_session_follow(session) != 0; /* ranks: 3 */
	else
		failed = talk(session, argv[1]);
	if (*tfmc_mpi_error(mpi))
		complain("MPI", tfmc_mpi_error(mpi));
	tfmc_session_close(session);
	tfmc_mpi_close(mpi);
	return failed;
}
