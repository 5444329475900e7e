/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire format of protobuf: a message is a sequence of fields, each a varint tag (number << 3 | wire type) and a value.
 * A varint has 7 bits in a byte, low ones first; the top bit says that another byte follows. Groups (wire types 3 and
 * 4) are an error: neither ONNX nor SentencePiece has any.
 */
#include "frontend/weights/protobuf.h"

#include <stddef.h>

#include "frontend/weights/stored.h"

#define VARINT_BYTES_MAX 10 /* of 64 bits */

bool proto_varint(struct proto_range *r, uint64_t *out)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < VARINT_BYTES_MAX && r->at < r->end; i++) {
		unsigned char byte = *r->at++;
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if ((byte & 0x80) == 0) {
			*out = v;
			return true;
		}
	}
	return false;
}

/* Each length is compared with the end of the message before r moves. *ok false on entry: an earlier field was damaged,
 * or its caller failed, and the loop over fields ends. */
bool proto_next(struct proto_range *r, struct proto_field *f, bool *ok)
{
	uint64_t tag, n;
	if (!*ok || r->at == r->end)
		return false;
	*ok = proto_varint(r, &tag) && tag >> 3 != 0 && tag >> 3 <= UINT32_MAX;
	if (!*ok)
		return false;
	*f = (struct proto_field){.number = tag >> 3, .wire = (enum proto_wire)(tag & 7)};
	switch (f->wire) {
	case WIRE_VARINT: *ok = proto_varint(r, &f->value); break;
	case WIRE_64:
	case WIRE_32:
		n = f->wire == WIRE_64 ? 8 : 4;
		*ok = (size_t)(r->end - r->at) >= n;
		f->value = *ok ? read_little_endian(r->at, n) : 0;
		r->at += *ok ? n : 0;
		break;
	case WIRE_BYTES:
		*ok = proto_varint(r, &n) && n <= (size_t)(r->end - r->at);
		f->bytes = (struct proto_range){r->at, *ok ? r->at + n : r->at};
		r->at = f->bytes.end;
		break;
	default: *ok = false; break;
	}
	return *ok;
}
