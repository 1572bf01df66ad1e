package verbs

import "testing"

// A private buffer is anonymous memory, not a file that could be passed to another process.
func TestPrivateBuffer(t *testing.T) {
	buf, err := AllocPrivateBuffer(10000)
	if err != nil || len(buf) != 10000 {
		t.Fatal(len(buf), err)
	}
	mappings.mu.Lock()
	m := mappings.sorted[findMapping(sliceStart(buf))-1]
	mappings.mu.Unlock()
	if m.file != nil {
		t.Error("a private buffer has a file")
	}
	if !ownBuffer(buf) || !ownBuffer(buf[5:10]) || ownBuffer(make([]byte, 5)) {
		t.Error("ownBuffer is wrong about a private buffer or other memory")
	}
	if err := FreeBuffer(buf); err != nil {
		t.Error(err)
	}
	if ownBuffer(buf) {
		t.Error("ownBuffer reports true for a freed buffer")
	}
}
