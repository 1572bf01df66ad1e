package tool

import (
	"fmt"
	"strconv"
)

// The types reject numbers that an int cannot hold; pflag truncates them where an int has 32 bits.

// IntVar, IntVarP and UintVarP define options as pflag's functions of the same names do.
func (f *Flags) IntVar(p *int, name string, value int, usage string) {
	f.IntVarP(p, name, "", value, usage)
}

func (f *Flags) IntVarP(p *int, name, shorthand string, value int, usage string) {
	*p = value
	f.VarP((*intValue)(p), name, shorthand, usage)
}

func (f *Flags) UintVarP(p *uint, name, shorthand string, value uint, usage string) {
	*p = value
	f.VarP((*uintValue)(p), name, shorthand, usage)
}

type intValue int

func (v *intValue) Type() string   { return "int" }
func (v *intValue) String() string { return fmt.Sprint(int(*v)) }
func (v *intValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 0, strconv.IntSize)
	if err == nil {
		*v = intValue(n)
	}
	return err
}

type uintValue uint

func (v *uintValue) Type() string   { return "uint" }
func (v *uintValue) String() string { return fmt.Sprint(uint(*v)) }
func (v *uintValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, strconv.IntSize)
	if err == nil {
		*v = uintValue(n)
	}
	return err
}
