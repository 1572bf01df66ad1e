package fold

import "testing"

// TestNarrower runs the code for processors without the widest registers.
func TestNarrower(t *testing.T) {
	if !widest {
		t.Skip("this is such a processor, or it has no wide registers at all: TestFold says it")
	}
	widest = false
	defer func() { widest = true }()
	t.Run("Fold", TestFold)
}
