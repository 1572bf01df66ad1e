package soft

import (
	"errors"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// TestSwitches: a value without a meaning is an error that names the variable, the value and the allowed ones.
func TestSwitches(t *testing.T) {
	for _, s := range switches {
		for value, bad := range map[string]bool{"": false, s.values[0]: false, "maybe": true, "2": true, "off": true} {
			t.Setenv(s.name, value)
			_, err := new(provider).Devices()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if bad != errors.Is(err, verbs.EINVAL) || bad && (!strings.Contains(text, s.name+`="`+value+`"`) ||
				!strings.Contains(text, "must be "+s.values[0])) {
				t.Errorf("%s=%s: %v", s.name, value, err)
			}
		}
		t.Setenv(s.name, "")
	}
}
