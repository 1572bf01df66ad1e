package soft

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
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

// TestProviderThatIsNotImported: the error says that the program lacks the provider that the environment selects.
func TestProviderThatIsNotImported(t *testing.T) {
	t.Setenv(driver.EnvProvider, driver.HW)
	list, err := verbs.Devices()
	if len(list) > 0 || !errors.Is(err, verbs.ENODEV) || !strings.Contains(err.Error(), "must import provider/hw") {
		t.Errorf("%d devices, %v", len(list), err)
	}
	t.Setenv(driver.EnvProvider, "firmware")
	if _, err := verbs.Devices(); !errors.Is(err, verbs.EINVAL) || strings.Contains(err.Error(), "import") {
		t.Errorf("an unknown provider: %v", err)
	}
	t.Setenv(driver.EnvProvider, driver.IWARP) // this package has its devices, if the environment asks for them
	if _, err := verbs.Devices(); err != nil && (runtime.GOOS == "linux" || !errors.Is(err, verbs.ENODEV)) {
		t.Errorf("iwarp: %v", err)
	}
}
