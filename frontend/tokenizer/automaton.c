/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles a pattern tree to a deterministic automaton with the semantics of a backtracking matcher. The tree
 * becomes a program of a Pike VM (Thompson NFA with priorities); a state of the automaton is an ordered list
 * of program positions, the preferred one first. A transition depends on the class of the next character, so
 * one character of lookahead costs nothing. A match cuts off all less preferred positions after it.
 * Characters that no set distinguishes share a class.
 * Such a class has a mask with the bits of the sets that contain it; the class after the last, number n_classes, is
 * the end of the text, which is in no set. The sum of all work is limited, as a pattern is part of a file that may be
 * hostile.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/pattern.h"

#define PROGRAM_MAX 8000u
#define SETS_MAX    64u                 /* bits of a mask */
#define CLASSES_MAX 250u                /* with the end of the text: a class is a byte in the format */
#define STATES_MAX  4000u               /* below TFMC_TOK_A_DEAD */
#define WORK_MAX    ((uint64_t)1 << 28) /* instructions examined in all closures */

enum opcode { OP_CHAR, OP_LOOKAHEAD, OP_SPLIT, OP_JUMP, OP_MATCH };
/* Instruction of the program. */
struct instruction {
	enum opcode opcode;
	bool negative;
	uint32_t set;  /* of CHAR and LOOKAHEAD */
	uint32_t a, b; /* SPLIT: targets, a preferred; JUMP: target a */
};

/* State of the automaton: ordered positions in the program. */
struct state {
	uint32_t *program;
	uint32_t n, hash;
};

/* Program, character classes and states. */
struct compiler {
	struct arena *arena;
	const char *why; /* first error */
	uint64_t work;
	struct {
		struct instruction *items;
		size_t n, cap;
	} program;
	const struct pattern_set *sets[SETS_MAX];
	uint32_t n_sets;
	/* Characters from starts[i] on have class of[i]. */
	uint32_t *starts, *of;
	size_t n_starts;
	uint64_t masks[CLASSES_MAX]; /* sets that contain the class */
	uint32_t n_classes;          /* not counting the end of the text */
	struct {
		struct state *items;
		size_t n, cap;
	} states;
	struct {
		uint16_t *items;
		size_t n, cap;
	} next;
	uint32_t *seen, *stack, *list; /* by instruction; seen: generation in which it was reached */
	uint32_t generation, n_list;
};

/* Records the first reason; returns false. */
static bool reject(struct compiler *c, const char *why)
{
	if (c->why == NULL)
		c->why = why;
	return false;
}

/* ---- places ---- */

/* Appends an instruction; returns its index, or 0 and a reason in c->why if there are too many. */
static uint32_t add_instruction(struct compiler *c, struct instruction instruction)
{
	struct instruction *p = c->program.n < PROGRAM_MAX ? ARENA_PUSH(c->arena, &c->program) : NULL;
	if (p == NULL) {
		reject(c, "it has more than 8000 steps with its repetitions written out");
		return 0;
	}
	*p = instruction;
	return (uint32_t)c->program.n - 1;
}

/* Index of a character set, shared by equal sets, as the bits of a mask are few: 64. */
static uint32_t set_index(struct compiler *c, const struct pattern_set *s)
{
	for (uint32_t i = 0; i < c->n_sets; i++)
		if (c->sets[i]->n == s->n &&
		    (s->n == 0 || !memcmp(c->sets[i]->items, s->items, s->n * sizeof(*s->items))))
			return i;
	if (c->n_sets == SETS_MAX) {
		reject(c, "it has too many sets of characters");
		return 0;
	}
	c->sets[c->n_sets] = s;
	return c->n_sets++;
}

static void compile_node(struct compiler *c, const struct pattern *n);

#define NO_INSTRUCTION UINT32_MAX

/* Patches the split at `at`: enter the child after it, or leave to the end of the program so far; lazy prefers
 * to leave. */
static void patch_split(struct compiler *c, uint32_t at, bool lazy)
{
	struct instruction *p = &c->program.items[at];
	uint32_t enter = at + 1, after = (uint32_t)c->program.n;
	p->a = lazy ? after : enter;
	p->b = lazy ? enter : after;
}

/* At most `max` times X, as (X(X(X)?)?)?: leaving one leaves all. Where that is, is known after the last X: until then
 * each split links to the one before by `a`. */
static void compile_optional(struct compiler *c, const struct pattern *n, uint32_t max)
{
	uint32_t last = NO_INSTRUCTION;
	for (uint32_t i = 0; i < max && c->why == NULL; i++) {
		last = add_instruction(c, (struct instruction){.opcode = OP_SPLIT, .a = last});
		compile_node(c, n->child);
	}
	while (c->why == NULL && last != NO_INSTRUCTION) {
		uint32_t before = c->program.items[last].a;
		patch_split(c, last, n->lazy);
		last = before;
	}
}

/* True: the pattern may match the empty string. */
static bool is_nullable(const struct pattern *n)
{
	bool all = true, any = false;
	for (const struct pattern *child = n->child; child != NULL; child = child->next) {
		bool nothing = is_nullable(child);
		all = all && nothing;
		any = any || nothing;
	}
	switch (n->kind) {
	case PATTERN_SET: return false;
	case PATTERN_LOOKAHEAD: return true;
	case PATTERN_CONCAT: return all;
	case PATTERN_ALTERNATION: return any;
	case PATTERN_REPEAT: return any || n->min == 0;
	}
	return true;
}

/* X{min,max}: X written out min times, then max - min optional ones, or a loop. Rejects repetitions of an empty match,
 * on which matchers do not agree. */
static void compile_repeat(struct compiler *c, const struct pattern *n)
{
	if (n->max > 1 && is_nullable(n->child))
		reject(c, "more than one of what may be nothing");
	for (uint32_t i = 0; i < n->min && c->why == NULL; i++)
		compile_node(c, n->child);
	if (n->max != UINT32_MAX) {
		compile_optional(c, n, n->max - n->min);
		return;
	}
	/* X*: split, X, jump back. */
	uint32_t split = add_instruction(c, (struct instruction){.opcode = OP_SPLIT});
	compile_node(c, n->child);
	add_instruction(c, (struct instruction){.opcode = OP_JUMP, .a = split});
	if (c->why == NULL)
		patch_split(c, split, n->lazy);
}

/* X|Y|Z: a split before each alternative but the last prefers it to those after it; each jumps to the common end, which
 * is known when all are compiled. */
static void compile_alternation(struct compiler *c, const struct pattern *n)
{
	struct {
		uint32_t *items;
		size_t n, cap;
	} ends = {0};
	for (const struct pattern *child = n->child; child != NULL && c->why == NULL; child = child->next) {
		uint32_t split = child->next != NULL
		                         ? add_instruction(c, (struct instruction){.opcode = OP_SPLIT})
		                         : 0;
		compile_node(c, child);
		if (child->next == NULL || c->why != NULL)
			break;
		uint32_t *end = ARENA_PUSH(c->arena, &ends);
		uint32_t go = add_instruction(c, (struct instruction){.opcode = OP_JUMP});
		if (end == NULL || c->why != NULL) {
			reject(c, "no memory");
			return;
		}
		*end = go;
		c->program.items[split].a = split + 1;
		c->program.items[split].b = (uint32_t)c->program.n;
	}
	for (size_t i = 0; c->why == NULL && i < ends.n; i++)
		c->program.items[ends.items[i]].a = (uint32_t)c->program.n;
}

/* Appends the program of a node; the first reason that it is not possible is in c->why. */
static void compile_node(struct compiler *c, const struct pattern *n)
{
	struct instruction p = {.opcode = n->kind == PATTERN_SET ? OP_CHAR : OP_LOOKAHEAD,
	                        .negative = n->negative};
	switch (n->kind) {
	case PATTERN_SET:
	case PATTERN_LOOKAHEAD:
		p.set = set_index(c, &n->set);
		add_instruction(c, p);
		break;
	case PATTERN_CONCAT:
		for (const struct pattern *child = n->child; child != NULL && c->why == NULL;
		     child = child->next)
			compile_node(c, child);
		break;
	case PATTERN_ALTERNATION: compile_alternation(c, n); break;
	case PATTERN_REPEAT: compile_repeat(c, n); break;
	}
}

/* ---- classes of characters ---- */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Characters at which the membership in some set may change, sorted and distinct. 0x80 is one of them since the
   format has a table of its own for ASCII. False: no memory. */
static bool find_boundaries(struct compiler *c)
{
	size_t n = 2, n_kept = 0;
	for (uint32_t i = 0; i < c->n_sets; i++)
		n += 2 * c->sets[i]->n;
	c->starts = ARENA_ARRAY(c->arena, uint32_t, n);
	c->of = ARENA_ARRAY(c->arena, uint32_t, n);
	if (c->starts == NULL || c->of == NULL)
		return reject(c, "no memory");
	size_t at = 0;
	c->starts[at++] = 0;
	c->starts[at++] = 0x80;
	for (uint32_t i = 0; i < c->n_sets; i++) {
		for (size_t k = 0; k < c->sets[i]->n; k++) {
			c->starts[at++] = c->sets[i]->items[k].from;
			c->starts[at++] = c->sets[i]->items[k].to + 1;
		}
	}
	qsort(c->starts, n, sizeof(*c->starts), compare);
	for (size_t i = 0; i < n; i++)
		if ((n_kept == 0 || c->starts[n_kept - 1] != c->starts[i]) &&
		    c->starts[i] <= PATTERN_CHAR_LAST)
			c->starts[n_kept++] = c->starts[i];
	c->n_starts = n_kept;
	return true;
}

/* Partitions the characters by the sets that contain them: ranges of one mask share a class. False, and a reason, if
   there are too many classes. */
static bool find_char_classes(struct compiler *c)
{
	if (!find_boundaries(c))
		return false;
	for (size_t i = 0; i < c->n_starts; i++) {
		uint64_t mask = 0;
		uint32_t k = 0;
		for (uint32_t s = 0; s < c->n_sets; s++)
			mask |= pattern_set_has(c->sets[s], c->starts[i]) ? (uint64_t)1 << s : 0;
		while (k < c->n_classes && c->masks[k] != mask)
			k++;
		if (k == CLASSES_MAX)
			return reject(c, "it tells too many classes of characters apart");
		c->masks[k] = mask;
		c->n_classes = k == c->n_classes ? k + 1 : c->n_classes;
		c->of[i] = k;
	}
	size_t n_kept = 0; /* merge adjacent ranges of one class, except at the end of ASCII */
	for (size_t i = 0; i < c->n_starts; i++) {
		if (n_kept && c->of[n_kept - 1] == c->of[i] && c->starts[i] != 0x80)
			continue;
		c->starts[n_kept] = c->starts[i];
		c->of[n_kept++] = c->of[i];
	}
	c->n_starts = n_kept;
	return true;
}

/* ---- states ---- */

/* Index of a state, an ordered list of positions; adds it if it is new. Order counts: it is the preference of a
 * backtracking matcher. 0, and a reason, without success. */
static uint32_t intern_state(struct compiler *c, const uint32_t *program, uint32_t n)
{
	uint32_t hash = 2166136261u;
	for (uint32_t i = 0; i < n; i++)
		hash = (hash ^ program[i]) * 16777619u;
	for (uint32_t i = 0; i < c->states.n; i++) {
		const struct state *s = &c->states.items[i];
		if (s->hash == hash && s->n == n && !memcmp(s->program, program, n * sizeof(*program)))
			return i;
	}
	struct state *s = c->states.n < STATES_MAX ? ARENA_PUSH(c->arena, &c->states) : NULL;
	uint32_t *copy = ARENA_ARRAY(c->arena, uint32_t, n + 1);
	if (s == NULL || copy == NULL) {
		reject(c, "its automaton is too large");
		return 0;
	}
	memcpy(copy, program, n * sizeof(*program));
	*s = (struct state){copy, n, hash};
	return (uint32_t)c->states.n - 1;
}

/* True: a character of the class satisfies a CHAR or LOOKAHEAD instruction. */
static bool class_matches(const struct compiler *c, const struct instruction *p, uint32_t class)
{
	bool in = class < c->n_classes && c->masks[class] >> p->set & 1;
	return in != p->negative;
}

/* Epsilon closure of one position in priority order (the stack has the preferred branch of a split on top): appends the
 * successors of matching CHAR instructions to the list. True: reached MATCH, which ends the list, as less preferred
 * positions cannot win. `class` is that of the next character, so it decides lookaheads, too. */
static bool epsilon_closure(struct compiler *c, uint32_t instruction, uint32_t class)
{
	uint32_t depth = 0;
	c->stack[depth++] = instruction;
	while (depth) {
		uint32_t at = c->stack[--depth];
		const struct instruction *p = &c->program.items[at];
		if (c->seen[at] == c->generation) /* a preferred path has reached it */
			continue;
		c->seen[at] = c->generation;
		c->work++;
		switch (p->opcode) {
		case OP_CHAR:
			if (class_matches(c, p, class))
				c->list[c->n_list++] = at + 1;
			break;
		case OP_LOOKAHEAD:
			if (class_matches(c, p, class))
				c->stack[depth++] = at + 1;
			break;
		case OP_SPLIT:
			c->stack[depth++] = p->b;
			c->stack[depth++] = p->a;
			break;
		case OP_JUMP: c->stack[depth++] = p->a; break;
		case OP_MATCH: return true;
		}
	}
	return false;
}

/* Adds the transition of a state for a class of the next character: the closures of its positions in order, of which
 * the first that reaches MATCH cuts off the less preferred ones. The match then ends before this character. */
static bool add_transition(struct compiler *c, uint32_t state, uint32_t class)
{
	bool matches = false;
	const struct state *s = &c->states.items[state];
	c->generation++;
	c->n_list = 0;
	for (uint32_t i = 0; i < s->n && !matches; i++)
		matches = epsilon_closure(c, s->program[i], class);
	uint32_t to = c->n_list ? intern_state(c, c->list, c->n_list) : TFMC_TOK_A_DEAD;
	if (!ARENA_ADDED(c->arena, &c->next, (uint16_t)(to | (matches ? TFMC_TOK_A_MATCH : 0u))))
		return reject(c, "no memory");
	if (matches && state == 0) /* no character has been read */
		return reject(c, "it may match nothing");
	if (c->work > WORK_MAX)
		return reject(c, "its automaton is too large");
	return c->why == NULL;
}

/* Subset construction: adds states until the transitions of all are known; state 0 is the start of the program.
   False, and a reason, on failure. */
static bool build_states(struct compiler *c)
{
	size_t n = c->program.n;
	uint32_t first = 0;
	c->seen = ARENA_ARRAY(c->arena, uint32_t, n);
	c->stack = ARENA_ARRAY(c->arena, uint32_t, 2 * n + 2); /* each instruction pushes two at most, once */
	c->list = ARENA_ARRAY(c->arena, uint32_t, n);
	if (c->seen == NULL || c->stack == NULL || c->list == NULL)
		return reject(c, "no memory");
	(void)intern_state(c, &first, 1);
	for (uint32_t s = 0; c->why == NULL && s < c->states.n; s++)
		for (uint32_t class = 0; class <= c->n_classes; class ++)
			if (!add_transition(c, s, class))
				return false;
	return c->why == NULL;
}

/* ---- bytes ---- */

/* Writes the packed automaton of runtime/tokenizer/format.h, in the order of its parts there; text NULL: no
   memory. */
static struct tokenizer_string serialize(struct compiler *c)
{
	struct buf out;
	buf_init(&out);
	buf_u32le(&out, (uint32_t)c->states.n);
	buf_u32le(&out, c->n_classes + 1);
	buf_u32le(&out, (uint32_t)c->n_starts);
	for (size_t i = 0; i < c->n_starts; i++)
		buf_u32le(&out, c->starts[i]);
	for (uint32_t cp = 0, i = 0; cp < 128; cp++) {
		while (i + 1 < c->n_starts && c->starts[i + 1] <= cp)
			i++;
		buf_char(&out, (char)c->of[i]);
	}
	for (size_t i = 0; i < c->n_starts; i++)
		buf_char(&out, (char)c->of[i]);
	buf_fill(&out, 0, (0 - out.len) % 4);
	for (size_t i = 0; i < c->next.n; i++) {
		buf_char(&out, (char)(c->next.items[i] & 0xff));
		buf_char(&out, (char)(c->next.items[i] >> 8));
	}
	struct tokenizer_string bytes = {NULL, out.len};
	char *copy = buf_failed(&out) ? NULL : arena_alloc(c->arena, out.len);
	if (copy != NULL)
		memcpy(copy, out.data, out.len);
	bytes.text = copy;
	buf_destroy(&out);
	return copy != NULL ? bytes : (struct tokenizer_string){NULL, 0};
}

/* Phases: tree, program, classes of characters, automaton, bytes. Each runs only if the one before gave no reason. */
struct tokenizer_string pattern_compile(struct arena *a, const char *text, const char **why)
{
	struct compiler *c = ARENA_NEW(a, struct compiler);
	const struct pattern *tree = pattern_parse(a, text, why);
	struct tokenizer_string none = {NULL, 0};
	if (c == NULL || tree == NULL)
		return none;
	c->arena = a;
	compile_node(c, tree);
	add_instruction(c, (struct instruction){.opcode = OP_MATCH});
	bool ok = c->why == NULL && find_char_classes(c) && build_states(c);
	*why = c->why != NULL ? c->why : "no memory";
	return ok ? serialize(c) : none;
}
