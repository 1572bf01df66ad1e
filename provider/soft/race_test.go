//go:build race

package soft_test

// The race detector multiplies memory and allocates by itself.
const raceDetector = true
