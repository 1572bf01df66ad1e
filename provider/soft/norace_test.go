//go:build !race

package soft_test

const raceDetector = false
