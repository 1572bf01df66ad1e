package rdmashow

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kind is an available filter: its field name, and whether the values are numbers or words.
type kind struct {
	name   string
	number bool
}

// numbers and strs return kinds.
func numbers(names ...string) (list []kind) {
	for _, n := range names {
		list = append(list, kind{n, true})
	}
	return list
}

func strs(names ...string) (list []kind) {
	for _, n := range names {
		list = append(list, kind{n, false})
	}
	return list
}

// filter is a filter of the command line: a row passes if the field is in one of the ranges or is one of
// the words.
type filter struct {
	name   string
	ranges [][2]uint64
	words  []string
}

// parseFilters parses pairs of a filter's name and value. It returns the value of the filter named where
// (link or dev) as place.
func parseFilters(words []string, where string, kinds []kind) (place string, filters []filter, err error) {
	if len(words)%2 != 0 {
		return "", nil, fmt.Errorf("%q: the filter needs a value; the filters are %s", words[len(words)-1],
			filterNames(where, kinds))
	}
	for i := 0; i < len(words); i += 2 {
		name, value := words[i], words[i+1]
		if isPrefix(name, where, 1) {
			place = value
			continue
		}
		k := findKind(name, kinds)
		if k == nil {
			return "", nil, fmt.Errorf("unknown filter %q; the filters are %s", name, filterNames(where, kinds))
		}
		f := filter{name: k.name}
		if !k.number {
			f.words = strings.Split(value, ",")
		} else if f.ranges, err = parseRanges(value); err != nil {
			return "", nil, fmt.Errorf("%s %q: %w", k.name, value, err)
		}
		filters = append(filters, f)
	}
	return place, filters, nil
}

func findKind(name string, kinds []kind) *kind {
	for i := range kinds {
		if isPrefix(name, kinds[i].name, 1) {
			return &kinds[i]
		}
	}
	return nil
}

func filterNames(where string, kinds []kind) string {
	s := where
	for _, k := range kinds {
		s += ", " + k.name
	}
	return s
}

// parseRanges parses 17 or 17,20-30. Keys may be hexadecimal, as they are shown.
func parseRanges(s string) (list [][2]uint64, err error) {
	for _, piece := range strings.Split(s, ",") {
		low, high, isRange := strings.Cut(piece, "-")
		a, ok := parseNumber(low)
		b, ok2 := a, true
		if isRange {
			b, ok2 = parseNumber(high)
		}
		if !ok || !ok2 || b < a {
			return nil, fmt.Errorf("must be numbers and ranges, such as 17 or 17,20-30")
		}
		list = append(list, [2]uint64{a, b})
	}
	return list, nil
}

func parseNumber(s string) (uint64, bool) {
	base := 10
	if digits, isHex := strings.CutPrefix(s, "0x"); isHex {
		s, base = digits, 16
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil
}

// passes reports whether a row passes all filters. A row without a filter's field does not pass.
func (r *row) passes(filters []filter) bool {
	for _, f := range filters {
		if !r.passesOne(f) {
			return false
		}
	}
	return true
}

func (r *row) passesOne(f filter) bool {
	for _, fields := range [][]field{r.hidden, r.fields} {
		for _, have := range fields {
			if have.name != f.name {
				continue
			}
			if f.ranges != nil {
				return inRanges(have.value, f.ranges)
			}
			for _, w := range f.words {
				if strings.EqualFold(w, fmt.Sprint(have.value)) {
					return true
				}
			}
			return false
		}
	}
	return false
}

// inRanges reports whether a value, or one of several, is in one of the ranges.
func inRanges(value any, ranges [][2]uint64) bool {
	in := func(n uint64) bool {
		for _, r := range ranges {
			if r[0] <= n && n <= r[1] {
				return true
			}
		}
		return false
	}
	if list, ok := value.(counted); ok {
		for _, n := range list {
			if in(uint64(n)) {
				return true
			}
		}
		return false
	}
	return in(toUint(value))
}

func toUint(value any) uint64 {
	switch v := value.(type) {
	case int:
		return uint64(v)
	case uint16:
		return uint64(v)
	case uint32:
		return uint64(v)
	case uint64:
		return v
	case hex:
		return uint64(v)
	}
	return math.MaxUint64
}
