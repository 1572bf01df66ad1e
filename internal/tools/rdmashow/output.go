package rdmashow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/verbena-rdma/verbena/internal/printable"
)

// row has the content of one line or JSON object, in order.
type row struct {
	head   string // text before the fields
	place  []field
	fields []field
	hidden []field // only for filters
}

type field struct {
	name  string
	value any // a string, a number, or one of the types below
}

// The types select how a value is written.
type (
	hex      uint64   // 0x2f; in JSON "2f"
	onOff    bool     // on, off; in JSON true, false
	list     []string // a,b; in JSON an array
	counter  uint64   // on a line of its own if the output is pretty
	counted  []uint32 // QPs of counters, on a line of their own; in JSON an array
	jsonOnly int      // not in text
)

// writeText writes lines in iproute2's format, each ending with a space.
func writeText(w io.Writer, rows []row, pretty bool) error {
	var b bytes.Buffer
	for _, r := range rows {
		b.WriteString(r.head)
		for _, f := range r.fields {
			f.appendText(&b, pretty)
		}
		b.WriteByte('\n')
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (f *field) appendText(b *bytes.Buffer, pretty bool) {
	switch v := f.value.(type) {
	case jsonOnly:
	case hex:
		fmt.Fprintf(b, "%s 0x%x ", f.name, uint64(v))
	case onOff:
		fmt.Fprintf(b, "%s %s ", f.name, map[onOff]string{true: "on", false: "off"}[v])
	case list:
		fmt.Fprintf(b, "%s %s ", f.name, strings.Join(v, ","))
	case counter:
		if pretty {
			b.WriteString("\n    ")
		}
		fmt.Fprintf(b, "%s %d ", f.name, uint64(v))
	case counted:
		b.WriteString("\n    LQPN: <" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]uint32(v))), ","), "[]") + ">")
	case string:
		fmt.Fprintf(b, "%s %s ", f.name, printable.Text(v))
	default:
		fmt.Fprintf(b, "%s %v ", f.name, v)
	}
}

// writeJSON writes an array with an object for each row, if pretty with iproute2's indentation.
func writeJSON(w io.Writer, rows []row, pretty bool) error {
	var b bytes.Buffer
	space, eol := "", func(int) {}
	if pretty {
		space = " "
		eol = func(depth int) { b.WriteString("\n" + strings.Repeat("    ", depth)) }
	}
	b.WriteString("[" + space)
	for i, r := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		for k, f := range append(append([]field{}, r.place...), r.fields...) {
			if k > 0 {
				b.WriteByte(',')
			}
			eol(2)
			b.WriteString(quote(f.name) + ":" + space)
			f.appendJSON(&b, space)
		}
		eol(1)
		b.WriteByte('}')
	}
	if len(rows) > 0 {
		b.WriteString(space)
	}
	b.WriteString("]\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (f *field) appendJSON(b *bytes.Buffer, space string) {
	array := func(n int, item func(i int) string) {
		b.WriteString("[" + space)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		b.WriteString(space + "]")
	}
	switch v := f.value.(type) {
	case hex:
		fmt.Fprintf(b, `"%x"`, uint64(v))
	case list:
		array(len(v), func(i int) string { return quote(v[i]) })
	case counted:
		array(len(v), func(i int) string { return fmt.Sprint(v[i]) })
	case string:
		b.WriteString(quote(v))
	default:
		fmt.Fprint(b, v)
	}
}

// quote returns s in JSON. All that a terminal may obey is escaped, more than JSON needs.
func quote(s string) string {
	b, _ := json.Marshal(s)
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
