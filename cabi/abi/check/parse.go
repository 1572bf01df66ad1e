package main

import (
	"regexp"
	"strings"
)

// names are the declarations in preprocessed C.
type names struct {
	records map[string][]string // "struct x" or "union x" -> paths of its members: wr.rdma.rkey
	values  []string            // enumerators
}

var token = regexp.MustCompile(`[A-Za-z_]\w*|\d\w*|"[^"]*"|'[^']*'|[^\s\w]`)

// parse finds the structures, unions and enumerations at the top level of text.
func parse(text string) *names {
	n := &names{records: map[string][]string{}}
	t := token.FindAllString(text, -1)
	for i := 0; i+2 < len(t); i++ {
		switch {
		case t[i] == "{": // a function, or what follows an array: nothing of ours
			i = end(t, i)
		case (t[i] == "struct" || t[i] == "union") && t[i+2] == "{":
			close := end(t, i+2)
			if has([]string{"ibv_", "_ibv_", "verbs_", "rdma_", "sockaddr_ib", "ib_mad_addr", "ib_user_mad", "umad_"}, t[i+1]) {
				n.records[t[i]+" "+t[i+1]] = members(t[i+3:close], "")
			}
			i = close
		case t[i] == "enum" && t[i+1] == "{":
			n.enum(t[i+1 : end(t, i+1)])
			i = end(t, i+1)
		case t[i] == "enum" && t[i+2] == "{":
			n.enum(t[i+2 : end(t, i+2)])
			i = end(t, i+2)
		}
	}
	return n
}

// end returns the index of the bracket that closes the one at i.
func end(t []string, i int) int {
	depth := 0
	for ; i < len(t); i++ {
		switch t[i] {
		case "{", "(", "[":
			depth++
		case "}", ")", "]":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(t) - 1
}

// enum adds the enumerators of a body that begins with its bracket.
func (n *names) enum(t []string) {
	for i := 0; i+1 < len(t); i++ {
		switch t[i] {
		case "(":
			i = end(t, i)
		case "{", ",":
			if name := t[i+1]; token.MatchString(name) && name != "}" && name != "," {
				n.values = append(n.values, name)
			}
		}
	}
}

// members returns the paths of the members of a structure's body.
func members(t []string, prefix string) []string {
	var paths []string
	for len(t) > 0 {
		stop := semicolon(t)
		paths = append(paths, member(t[:stop], prefix)...)
		t = t[min(stop+1, len(t)):]
	}
	return paths
}

// semicolon returns the index of the end of the first declaration of t.
func semicolon(t []string) int {
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case "{", "(", "[":
			i = end(t, i)
		case ";":
			return i
		}
	}
	return len(t)
}

// member returns the paths of one declaration, which may have several declarators.
func member(t []string, prefix string) []string {
	t = plain(t)
	if len(t) == 0 {
		return nil
	}
	var paths []string
	for i := 0; i < len(t) && i < 3; i++ {
		if t[i] != "{" {
			continue
		}
		close := end(t, i)
		list := declarators(t[close+1:])
		if len(list) == 0 { // an anonymous one: its members belong to the outer structure
			return members(t[i+1:close], prefix)
		}
		for _, d := range list {
			paths = append(paths, prefix+d)
			paths = append(paths, members(t[i+1:close], prefix+d+".")...)
		}
		return paths
	}
	for _, d := range declarators(t) {
		paths = append(paths, prefix+d)
	}
	return paths
}

// plain returns t without attributes.
func plain(t []string) []string {
	var out []string
	for i := 0; i < len(t); i++ {
		if t[i] == "__attribute__" && i+1 < len(t) {
			i = end(t, i+1)
			continue
		}
		out = append(out, t[i])
	}
	return out
}

// declarators returns the names that a declaration declares, divided by commas.
func declarators(t []string) []string {
	var list []string
	name, pointer := "", false
	for i := 0; i < len(t); i++ {
		switch {
		case t[i] == ",":
			list = append(list, name)
			name, pointer = "", false
		case t[i] == "(" && i+2 < len(t) && t[i+1] == "*" && !pointer:
			name, pointer = t[i+2], true // a pointer to a function
			i = end(t, i)
		case t[i] == "(" || t[i] == "[":
			i = end(t, i)
		case !pointer && strings.ContainsAny(t[i][:1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"):
			name = t[i]
		}
	}
	if name != "" {
		list = append(list, name)
	}
	return list
}
