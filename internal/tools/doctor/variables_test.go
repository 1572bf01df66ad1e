package doctor

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestUnknownVariable(t *testing.T) {
	for env, want := range map[string]string{
		"VERBENA_DEVICE=eth0": "use VERBENA_DEVICES", "VERBENA_PCAP=x": "", "VERBENA_SNAPLEN=128": "use VERBENA_",
		"HOME=/": "",
	} {
		var r report
		if r.unknown([]string{env}); want != "" {
			finds(t, env, &r, note, "so it has no effect", want)
		} else if len(r.all) != 0 {
			t.Errorf("%s: %+v", env, r.all)
		}
	}
}

// The list is that of the page.
func TestVariablesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VERBENA_[A-Z0-9]+(?:_[A-Z0-9]+)*`).FindAllString(string(page), -1)
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, variables) {
		t.Errorf("the page has %q\nthe list %q", found, variables)
	}
}
