package verbs

import "testing"

// A private buffer is like any other, but lies in no file that another process could be given.
func TestPrivateBuffer(t *testing.T) {
	buf, err := AllocPrivateBuffer(10000)
	if err != nil || len(buf) != 10000 {
		t.Fatal(len(buf), err)
	}
	mappings.mu.Lock()
	m := mappings.sorted[findMapping(sliceStart(buf))-1]
	mappings.mu.Unlock()
	if m.file != nil {
		t.Error("it has a file")
	}
	if !ownBuffer(buf) || !ownBuffer(buf[5:10]) || ownBuffer(make([]byte, 5)) {
		t.Error("memory is taken for another's")
	}
	if err := FreeBuffer(buf); err != nil {
		t.Error(err)
	}
	if ownBuffer(buf) {
		t.Error("freed memory is taken for ours")
	}
}
