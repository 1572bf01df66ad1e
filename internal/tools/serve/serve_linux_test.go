package serve

import (
	"strings"
	"testing"
)

// The error of a wrong group names the option and what is allowed.
func TestGroupOfAnotherHost(t *testing.T) {
	_, err := groupID("no-such-group")
	if err == nil || !strings.Contains(err.Error(), `--group "no-such-group": must be a group`) {
		t.Errorf("%v", err)
	}
	for name, want := range map[string]int{"": -1, "17": 17} {
		if got, err := groupID(name); got != want || err != nil {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	}
}
