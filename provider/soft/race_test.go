//go:build race

package soft_test

// raceDetector: the race detector multiplies memory and allocates.
const raceDetector = true
