// Package printable makes text from other processes, hosts and files safe for a terminal: escape sequences could move
// the cursor, rename the window, and hide text. It imports the standard library only.
package printable

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns s if all of its characters are printable, otherwise s quoted as by %q.
func Text(s string) string {
	if visible(s, "") {
		return s
	}
	return strconv.Quote(s)
}

// List returns the texts, each as by Text, separated by commas.
func List(texts []string) string {
	var b strings.Builder
	for i, s := range texts {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(Text(s))
	}
	return b.String()
}

// Lines returns s with characters that are not printable as by %q, without quotes, except tabs and newlines.
func Lines(s string) string {
	if visible(s, "\n\t") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		if c := s[:n]; visible(c, "\n\t") {
			b.WriteString(c)
		} else {
			q := strconv.Quote(c)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// visible reports whether s has only printable characters and those of besides. Invalid UTF-8 is not printable.
func visible(s, besides string) bool {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
		if !strconv.IsPrint(r) && !strings.ContainsRune(besides, r) {
			return false
		}
	}
	return true
}
