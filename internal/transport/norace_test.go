//go:build !race

package transport

const slow = false
