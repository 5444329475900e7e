/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says which shape a picture shows. classify.h and classify.o come from
 *	tfmc examples/classify/model.yaml -o classify.o
 * and nothing else is needed: this program calls the object without libtfmcrt.
 *
 *	classify picture.pgm other.ppm ...
 *
 * Reads PGM and PPM (P2, P3, P5, P6) of any size; colours become grey, the size 24 x 24 by averaging areas.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "classify.h"

#define SIZE      24
#define CLASSES   4
#define SIDE_MAX  8192 /* pixels */
#define SHOWN     3
#define ALIGNMENT 64

static const char *const class_names[CLASSES] = {"circle", "square", "triangle", "cross"};

struct header {
	int kind; /* 2, 3, 5, 6: the digit after P */
	int width, height;
	int white; /* the largest value */
};

/* The rest of a comment; its newline, or EOF. */
static int skip_line(FILE *f)
{
	int c = getc(f);
	while (c != EOF && c != '\n')
		c = getc(f);
	return c;
}

/* The next number of the text, after blanks and comments; -1 when there is none or it is too large. */
static int read_number(FILE *f)
{
	int c = getc(f), value = 0;
	while (c == '#' || isspace(c)) {
		if (c == '#')
			c = skip_line(f);
		else
			c = getc(f);
	}
	if (!isdigit(c))
		return -1;
	for (; isdigit(c); c = getc(f)) {
		value = 10 * value + (c - '0');
		if (value > 65535)
			return -1;
	}
	return c == EOF || isspace(c) ? value : -1;
}

static int read_header(FILE *f, struct header *h)
{
	int p = getc(f);
	h->kind = getc(f) - '0';
	if (p != 'P' || (h->kind != 2 && h->kind != 3 && h->kind != 5 && h->kind != 6))
		return 0;
	h->width = read_number(f);
	h->height = read_number(f);
	h->white = read_number(f);
	return h->width > 0 && h->width <= SIDE_MAX && h->height > 0 && h->height <= SIDE_MAX && h->white > 0;
}

/* One value of a pixel, or -1. */
static int read_value(FILE *f, const struct header *h)
{
	int value;
	if (h->kind < 4) {
		value = read_number(f);
	} else {
		value = getc(f);
		if (value != EOF && h->white > 255) {
			int low = getc(f);
			value = low == EOF ? -1 : 256 * value + low;
		}
	}
	return value > h->white ? -1 : value;
}

/* 0 black to 1 white, negative at the end of the file. */
static float read_pixel(FILE *f, const struct header *h)
{
	static const float weights[3] = {0.299f, 0.587f, 0.114f};
	int colours = h->kind == 3 || h->kind == 6 ? 3 : 1;
	float sum = 0;
	for (int i = 0; i < colours; i++) {
		int value = read_value(f, h);
		if (value < 0)
			return -1.0f;
		sum += (colours == 1 ? 1.0f : weights[i]) * (float)value;
	}
	return sum / (float)h->white;
}

/* pixels [height, width] to picture [SIZE, SIZE]: the mean of the area under each cell; black -1, white 1. */
static void shrink(const float *pixels, const struct header *h, float *picture)
{
	double dy = (double)h->height / SIZE, dx = (double)h->width / SIZE;
	for (int i = 0; i < SIZE * SIZE; i++) {
		double top = (i / SIZE) * dy, left = (i % SIZE) * dx, sum = 0, area = 0;
		for (int y = (int)top; y < h->height && y < top + dy; y++) {
			double high = (y + 1 < top + dy ? y + 1 : top + dy) - (y > top ? y : top);
			for (int x = (int)left; x < h->width && x < left + dx; x++) {
				double wide = (x + 1 < left + dx ? x + 1 : left + dx) - (x > left ? x : left);
				sum += high * wide * pixels[(size_t)y * (size_t)h->width + (size_t)x];
				area += high * wide;
			}
		}
		picture[i] = area > 0 ? (float)(2 * sum / area - 1) : -1.0f;
	}
}

static const char *read_picture(const char *path, float *picture)
{
	struct header h;
	const char *error = NULL;
	float *pixels = NULL;
	FILE *f = fopen(path, "rb");
	if (!f)
		return "cannot be opened";
	if (!read_header(f, &h))
		error = "is no PGM or PPM picture";
	else if (!(pixels = malloc((size_t)h.width * (size_t)h.height * sizeof(*pixels))))
		error = "is too large";
	for (size_t i = 0; !error && i < (size_t)h.width * (size_t)h.height; i++) {
		pixels[i] = read_pixel(f, &h);
		if (pixels[i] < 0)
			error = "ends too early, or has a pixel brighter than white";
	}
	if (!error)
		shrink(pixels, &h, picture);
	free(pixels);
	fclose(f);
	return error;
}

/* The likeliest classes, best first. */
static void print_classes(const char *path, const float *probabilities)
{
	int printed[CLASSES] = {0};
	printf("%s:", path);
	for (int n = 0; n < SHOWN; n++) {
		int best = -1;
		for (int i = 0; i < CLASSES; i++) {
			if (!printed[i] && (best < 0 || probabilities[i] > probabilities[best]))
				best = i;
		}
		printed[best] = 1;
		printf("%s %s %.1f %%", n ? "," : "", class_names[best], 100.0 * (double)probabilities[best]);
	}
	printf("\n");
}

static int classify(struct classify_context *context, const char *path)
{
	float picture[SIZE * SIZE], probabilities[CLASSES];
	const struct classify_run_args args = {
	        .B = 1,
	        .picture = picture,
	        .picture_count = SIZE * SIZE,
	        .probabilities = probabilities,
	        .probabilities_count = CLASSES,
	};
	const char *error = read_picture(path, picture);
	if (error) {
		fprintf(stderr, "classify: %s %s\n", path, error);
		return 1;
	}
	int32_t status = classify_run(context, &args);
	if (status != CLASSIFY_OK) {
		fprintf(stderr, "classify: %s: %s\n", path, classify_status_text(status));
		return 1;
	}
	print_classes(path, probabilities);
	return 0;
}

int main(int argc, char **argv)
{
	static struct classify_context context;
	struct tfmc_config config = {.struct_size = sizeof(config), .workers = 1};
	int failed = 0;
	config.arena_bytes = (classify_arena_size(1, 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	config.arena = aligned_alloc(ALIGNMENT, config.arena_bytes);
	int32_t status = classify_init(&context, &config);
	if (status != CLASSIFY_OK)
		fprintf(stderr, "classify: %s\n", classify_status_text(status));
	for (int i = 1; i < argc && status == CLASSIFY_OK; i++)
		failed |= classify(&context, argv[i]);
	free(config.arena);
	return status != CLASSIFY_OK || failed;
}
