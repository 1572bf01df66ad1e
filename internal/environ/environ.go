// Package environ reads environment variables that name files and folders. A setuid or setgid program, or one with
// capabilities of its file, has more rights than the user who sets its environment: it must not write a file or trust
// a folder of that user's choice. The package imports golang.org/x/sys.
package environ

import "os"

// Path returns the value of a variable that names a file or a folder (secure_getenv). It is empty if the process is
// Elevated. Path is safe for concurrent use.
func Path(name string) string {
	if Elevated() {
		return ""
	}
	return os.Getenv(name)
}
