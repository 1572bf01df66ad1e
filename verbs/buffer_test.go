package verbs

import (
	"math"
	"strconv"
	"testing"
)

// A buffer for which there is no memory is refused.
func TestBufferLongerThanMemory(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("there may be memory for the largest int")
	}
	_, err := AllocBuffer(math.MaxInt)
	refused(t, err, ENOMEM, "alloc_buffer")
	_, err = AllocPrivateBuffer(math.MaxInt)
	refused(t, err, ENOMEM, "alloc_buffer")
}
