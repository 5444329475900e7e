/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on a terminal and elsewhere, with a clock of the test. */
#include <check.h>
#include <string.h>

#include "frontend/driver/options/progress.h"
#include "ir/support/compiler.h"

struct fixture {
	double seconds;
	struct buf out;
};
static struct fixture fx;

static double clock_of(void *user)
{
	return ((struct fixture *)user)->seconds;
}

static void write_to(void *user, const char *text, size_t n)
{
	buf_bytes(&((struct fixture *)user)->out, text, n);
}

static struct progress_view view(enum progress_form form)
{
	fx.seconds = 100;
	buf_clear(&fx.out);
	return (struct progress_view){.form = form, .clock = clock_of, .write = write_to, .user = &fx};
}

static void expect(const char *want)
{
	ck_assert_str_eq(fx.out.len ? fx.out.data : "", want);
	buf_clear(&fx.out);
}

static void tell(struct progress_view *v, double seconds, const char *name, uint64_t done)
{
	const struct progress p = {progress_show, v};
	fx.seconds = seconds;
	progress_report(&p, name, strcmp(name, "packing") ? "groups" : NULL, done, 1000000000);
}

START_TEST(bar)
{
	struct progress_view v = view(PROGRESS_BAR);
	tell(&v, 100, "packing", 0);
	tell(&v, 100.9, "packing", 90000000);
	expect("");
	tell(&v, 102, "packing", 500000000);
	expect("\r\x1b[Kpacking: [##########..........] 50 %, 500.0 MB of 1.0 GB, 250.0 MB/s, 2 s left");
	tell(&v, 102.05, "packing", 600000000);
	expect("");
	progress_hide(&v);
	expect("\r\x1b[K");
	progress_hide(&v);
	expect("");
	tell(&v, 103, "packing", 750000000);
	expect("\r\x1b[Kpacking: [###############.....] 75 %, 750.0 MB of 1.0 GB, 250.0 MB/s, 1 s left");
	tell(&v, 104, "packing", 1000000000);
	expect("\r\x1b[K");
	/* Another stage waits for itself. */
	tell(&v, 104, "code", 100);
	tell(&v, 104.5, "code", 200);
	expect("");
}
END_TEST

START_TEST(lines)
{
	struct progress_view v = view(PROGRESS_LINES);
	tell(&v, 100, "code", 0);
	tell(&v, 109, "code", 90);
	expect("");
	tell(&v, 110, "code", 250000000);
	expect("code: 25 %, 250000000 of 1000000000 groups, 30 s left\n");
	tell(&v, 119, "code", 260000000);
	expect("");
	tell(&v, 120, "packing", 0);
	tell(&v, 130, "packing", 0);
	expect("packing: 0 %, 0 bytes of 1.0 GB, 10 s\n");
	struct progress_view none = view(PROGRESS_NEVER);
	tell(&none, 100, "code", 0);
	tell(&none, 200, "code", 1);
	expect("");
}
END_TEST

START_TEST(forms)
{
	static const struct {
		enum when_word when;
		bool is_terminal;
		enum progress_form form;
	} rows[] = {{WHEN_AUTO, true, PROGRESS_BAR},    {WHEN_AUTO, false, PROGRESS_NEVER},
	            {WHEN_ALWAYS, true, PROGRESS_BAR},  {WHEN_ALWAYS, false, PROGRESS_LINES},
	            {WHEN_NEVER, true, PROGRESS_NEVER}, {WHEN_NEVER, false, PROGRESS_NEVER}};
	for (size_t i = 0; i < TFMC_COUNT(rows); i++)
		ck_assert_int_eq(progress_form_of(rows[i].when, rows[i].is_terminal), rows[i].form);
}
END_TEST

static void setup(void)
{
	buf_init(&fx.out);
}

static void teardown(void)
{
	buf_destroy(&fx.out);
}

Suite *suite_progress(void);

Suite *suite_progress(void)
{
	Suite *s = suite_create("progress");
	TCase *t = tcase_create("all");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, bar);
	tcase_add_test(t, lines);
	tcase_add_test(t, forms);
	suite_add_tcase(s, t);
	return s;
}
