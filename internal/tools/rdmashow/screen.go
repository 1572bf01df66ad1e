package rdmashow

import (
	"io"
	"os"

	"golang.org/x/term"
)

// screen is the terminal that a table is drawn on again and again.
type screen struct {
	size    func() (width, rows int) // nil if the output is none
	keys    <-chan byte              // nil if nobody can press any
	changes <-chan os.Signal         // the size is another, or it was continued: what is on the screen is not what was drawn

	in  int
	old *term.State // of the input; nil if it is no terminal
}

// open makes use of a terminal if the output is one that can be drawn on. Then restore must be called.
func (s *screen) open(w io.Writer) bool {
	out, ok := w.(*os.File)
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
	if state, err := term.MakeRaw(s.in); err == nil { // else Ctrl-C is a signal
		s.old = state
		s.keys = presses(os.Stdin)
	}
	return true
}

// presses has the keys, each as it is pressed.
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

// raw has keys arrive as they are pressed, also after another program had the terminal.
func (s *screen) raw() {
	if s.old != nil {
		_, _ = term.MakeRaw(s.in)
	}
}

// restore leaves the terminal as it was.
func (s *screen) restore() {
	if s.old != nil {
		_ = term.Restore(s.in, s.old)
	}
}
