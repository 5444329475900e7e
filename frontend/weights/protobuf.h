/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format of protobuf messages (ONNX files, tokenizer.model of SentencePiece). A message is a range of bytes;
 * every length is compared with the range it is in. The numbers of fields belong to the callers.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_PROTOBUF_H
#define TFMC_FRONTEND_WEIGHTS_PROTOBUF_H

#include <stdbool.h>
#include <stdint.h>

enum proto_wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

struct proto_range {
	const unsigned char *at, *end;
};

/* A field: its number, encoding, and value. */
struct proto_field {
	uint64_t number; /* 1 .. UINT32_MAX */
	enum proto_wire wire;
	uint64_t value;           /* WIRE_VARINT, WIRE_64, WIRE_32 */
	struct proto_range bytes; /* WIRE_BYTES */
};

/* Reads a varint of at most 10 bytes and advances r; false: it is cut off or longer. */
bool proto_varint(struct proto_range *r, uint64_t *out);
/* Reads the next field of a message and advances r. False at its end, with *ok false, and at damage, which sets *ok to
 * false. */
bool proto_next(struct proto_range *r, struct proto_field *f, bool *ok);

#endif
