#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The page for man has no warnings and every option; completion for bash offers what the command line takes, and
# the other shells accept theirs. What is absent is said.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "$*"; exit 1; }
for form in man bash zsh fish; do
	"$TFMC" help --format=$form >"$tmp/tfmc.$form"
	"$TFMC" help --format=$form | cmp - "$tmp/tfmc.$form"
done

if command -v groff >/dev/null; then
	groff -man -ww -Tutf8 -P-c -rLL=300n "$tmp/tfmc.man" >"$tmp/page" 2>"$tmp/warnings"
	[ ! -s "$tmp/warnings" ] || { cat "$tmp/warnings"; exit 1; }
	sed -i 's/.\x08//g' "$tmp/page"
	for command in $(sed -n 's/^COMMAND([A-Z]*, \([a-z]*\), .*/\1/p' "$TFMC_SOURCE/frontend/driver/options/commands.def"); do
		grep -qx "   $command" "$tmp/page" || fail "the page does not describe $command"
	done
	for option in $(sed -n 's/^OPTION([a-z0-9_]*, "\([^"]*\)", .*/\1/p' "$TFMC_SOURCE/frontend/driver/options/options.def"); do
		grep -qE -- "(^ +|, )--?$option([= ,]|$)" "$tmp/page" || fail "the page has no option $option"
	done
else
	echo "SKIPPED: the page for man (no groff)" >&2
fi

# Every option occurs in a block of the manual (of blocks that are not run the options are checked).
awk '/^```(sh|console)/ { on = 1; next } /^```/ { on = 0 } on || /^- (run|wrong): `tfmc / || /^ +tfmc /' \
	"$TFMC_SOURCE"/frontend/manual/*.md "$TFMC_SOURCE"/frontend/manual/reference/*.md >"$tmp/blocks"
for option in $(sed -n 's/^OPTION([a-z0-9_]*, "\([^"]*\)", .*/\1/p' "$TFMC_SOURCE/frontend/driver/options/options.def"); do
	grep -qE -- "(^|[ '\"])--?$option([= .;]|$)" "$tmp/blocks" || fail "no example of the manual has the option $option: see commands.def"
done
! command -v mandoc >/dev/null || mandoc -Tlint -Wwarning "$tmp/tfmc.man"

source "$tmp/tfmc.bash"
# Completions of the last argument.
offers()
{
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	_tfmc
	echo "${COMPREPLY[*]}"
}
expect() # OFFERED WORD...
{
	local want=$1
	shift
	[ "$(offers "$@")" = "$want" ] || fail "$*: offered '$(offers "$@")', not '$want'"
}
complete -p tfmc >/dev/null
cd "$tmp"
mkdir "a folder"
touch "my model.yaml"
expect "generate" tfmc gen
expect "my model.yaml" tfmc my
expect "my model.yaml" tfmc run my
expect "--temperature" tfmc generate --temp
expect "" tfmc run --temp
expect "--weights-out --weights" tfmc --weights
expect "auto always never" tfmc run --color ""
expect "always" tfmc run --color = al
expect "auto embed file" tfmc my --weights = =
expect "my model.yaml" tfmc run --inputs my
expect "a folder" tfmc attend --npy ""
expect "" tfmc run --threads ""
expect "verify" tfmc help ver
expect "markdown man" tfmc help --format ma
[ "$(offers tfmc "" | wc -w)" -gt 20 ] || fail "no commands are offered"

# Every option that is offered for a command is one of it.
for command in run generate opt help; do
	for option in $(offers tfmc $command -); do
		"$TFMC" $command $option --no-such-option 2>&1 | grep -qE "belongs to|unknown option $option" && fail "$command has no $option"
	done
done
for shell in zsh fish; do
	if command -v $shell >/dev/null; then
		$shell -n "$tmp/tfmc.$shell"
	else
		echo "SKIPPED: the form of completion for $shell (absent)" >&2
	fi
done
exit 0
