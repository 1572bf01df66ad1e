package main

import "strings"

// A block is a fenced block of Go code.
type block struct {
	line  int // line number at which it begins
	lines []string
}

// split replaces the fenced blocks of a page by empty lines, and returns the Go blocks.
func split(lines []string) (prose []string, code []block) {
	fenced, isGo := false, false
	for i, line := range lines {
		switch fence := strings.HasPrefix(line, "```"); {
		case fence && !fenced:
			fenced, isGo = true, line == "```go"
			if isGo {
				code = append(code, block{line: i + 2})
			}
		case fence:
			fenced, isGo = false, false
		case isGo:
			b := &code[len(code)-1]
			b.lines = append(b.lines, line)
		case !fenced:
			prose = append(prose, line)
			continue
		}
		prose = append(prose, "")
	}
	return prose, code
}

// quoted reports whether a block occurs in one of the files, possibly indented further.
func (b block) quoted(files [][]string) bool {
	for _, lines := range files {
		for i := range lines {
			if b.at(lines[i:]) {
				return true
			}
		}
	}
	return false
}

// at reports whether the lines begin with the block.
func (b block) at(lines []string) bool {
	if len(b.lines) == 0 || len(lines) < len(b.lines) {
		return false
	}
	indent, ok := strings.CutSuffix(lines[0], b.lines[0])
	if !ok || strings.Trim(indent, "\t") != "" {
		return false
	}
	for i, want := range b.lines {
		if want != "" {
			want = indent + want
		}
		if lines[i] != want {
			return false
		}
	}
	return true
}
