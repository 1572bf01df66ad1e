package verbs

import (
	"fmt"
	"strings"
)

// nameOf returns the text of an enum value: names[v], or Type(v) for a value without a name.
func nameOf(typ string, names []string, v int64) string {
	if v >= 0 && v < int64(len(names)) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", typ, v)
}

// textOf is nameOf for enums with a C function that returns the text; an unknown value is "unknown".
func textOf(texts []string, v int64) string {
	if v >= 0 && v < int64(len(texts)) && texts[v] != "" {
		return texts[v]
	}
	return "unknown"
}

// flagsOf joins the names of the bits of v with sep; names[i] belongs to bit i. Bits without a name come last, in
// hex.
func flagsOf(names []string, v uint64, sep string) string {
	if v == 0 {
		return "0"
	}
	var out []string
	for i, name := range names {
		if name != "" && v>>i&1 != 0 {
			out = append(out, name)
			v &^= 1 << i
		}
	}
	if v != 0 {
		out = append(out, fmt.Sprintf("%#x", v))
	}
	return strings.Join(out, sep)
}
