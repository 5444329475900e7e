# SPDX-License-Identifier: Apache-2.0
#
# Innermost loops of assembly as LLVM prints it (x86-64, aarch64) that multiply: a loop is what stands
# between a label and the branch back to it with no other label between. For every function that has such loops:
# FUNCTION LOOPS LARGEST SPILLS; LARGEST: products of the loop that has most, SPILLS: instructions of all these loops
# that do nothing but write or read a register that had no place (LLVM says so behind them; a constant that is an
# operand in memory costs nothing).

function close_function() {
	if (loops > 0)
		print name, loops, largest, spills
	loops = largest = spills = 0
}

/^[A-Za-z_"][^ ]*:.*(#|\/\/) @/ {
	close_function()
	name = $1
	gsub(/[":]/, "", name)
	label = ""
	next
}

/^\.LBB[0-9_]+:/ {
	label = $1
	sub(/:.*/, "", label)
	products = spilled = 0
	next
}

/^\t[a-z]/ {
	if ($1 ~ /^v?(fn?m(add|sub)[0-9]*|mul)[ps]s$/ || $1 ~ /^f(mla|mls|mul|n?madd)$/ ||
	    $1 ~ /^v?p(madd|dp)[a-z]+$/ || $1 ~ /^(mla|[su]+(mlal2?|dot))$/)
		products++
	if (/ (Spill|Reload)/ && !(/Folded Reload/ && /# /))
		spilled++
	target = $NF
	if (match($0, /\.LBB[0-9_]+/))
		target = substr($0, RSTART, RLENGTH)
	if (($1 ~ /^j/ || $1 ~ /^(b|b\..*|cbn?z|tbn?z)$/) && target == label && label != "") {
		if (products > 0) {
			loops++
			spills += spilled
			if (products > largest)
				largest = products
		}
		label = ""
	}
}

END { close_function() }
