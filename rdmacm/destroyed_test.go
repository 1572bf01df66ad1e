package rdmacm_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// DestroyQP and DestroySRQ of a closed ID return what its other calls do.
func TestDestroyAfterClose(t *testing.T) {
	id, err := rdmacm.CreateID(nil, rdmacm.PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.DestroyQP(); err == nil || errors.Is(err, rdmacm.ErrClosed) {
		t.Errorf("DestroyQP of an open ID: %v", err)
	}
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	if err := id.DestroyQP(); !errors.Is(err, rdmacm.ErrClosed) {
		t.Errorf("DestroyQP: %v", err)
	}
	if err := id.DestroySRQ(); !errors.Is(err, rdmacm.ErrClosed) {
		t.Errorf("DestroySRQ: %v", err)
	}
}
