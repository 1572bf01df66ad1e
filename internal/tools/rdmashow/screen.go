package rdmashow

import (
	"io"
	"os"

	"golang.org/x/term"
)

// screen is the terminal on which a table is redrawn.
type screen struct {
	size func() (width, rows int) // nil if the output is not a terminal
	keys <-chan byte              // nil without a keyboard
	// changes receives a signal when the size changes or the process is continued, so that the table must
	// be redrawn.
	changes <-chan os.Signal

	in  int
	old *term.State // state of the input; nil if it is not a terminal
}

// open sets the terminal up and reports whether the output is one that supports drawing. If it returns
// true, restore must be called.
func (s *screen) open(w io.Writer) bool {
	out, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(out.Fd())) || os.Getenv("TERM") == "dumb" {
		return false
	}
	s.size = func() (int, int) {
		width, rows, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || rows <= 0 {
			return 80, 24
		}
		return width, rows
	}
	s.changes = changes()
	s.in = int(os.Stdin.Fd())
	if state, err := term.MakeRaw(s.in); err == nil { // otherwise Ctrl-C raises a signal
		s.old = state
		s.keys = presses(os.Stdin)
	}
	return true
}

// presses returns a channel that receives each key as it is pressed.
func presses(in io.Reader) <-chan byte {
	keys := make(chan byte)
	go func() {
		for b := make([]byte, 1); ; {
			if n, err := in.Read(b); n == 0 || err != nil {
				return
			}
			keys <- b[0]
		}
	}()
	return keys
}

// raw makes keys arrive as they are pressed, also after another program used the terminal.
func (s *screen) raw() {
	if s.old != nil {
		_, _ = term.MakeRaw(s.in)
	}
}

// restore restores the terminal's state.
func (s *screen) restore() {
	if s.old != nil {
		_ = term.Restore(s.in, s.old)
	}
}
