package undocumented

func F() {}

// G has a comment.
func G() {}

func h() {}

type T struct{ Field int }

func (T) M() {}

func (T) m() {}

// U has a comment.
type U struct{}

// M has a comment.
func (U) M() {}

// I has a comment.
type I interface {
	N()
}

const A = 1

// These have a comment.
const (
	B = 2
	C = 3
)

const (
	// D has a comment.
	D = 4
	E = 5 // has a comment
	// G1 and G2 have one comment.
	G1 = 6
	G2 = 7
)

var V = 1
