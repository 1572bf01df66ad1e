//go:build linux && (amd64 || arm64)

package hw

import "os"

// TestOwn is the environment variable that permits Verbena's own library, with which the tests are ones of the C
// libraries. The device is then one of the software device.
const TestOwn = "VERBENA_TEST_OWN"

func init() { allowOwn = os.Getenv(TestOwn) != "" }
