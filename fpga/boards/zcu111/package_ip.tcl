# Packages a datapath as an IP with its register map, for Vivado 2022.2 or later.
#
#   vivado -mode batch -source package_ip.tcl -tclargs NAME [axi|axis] [BUILD] [IP]
#
# NAME is the datapath, or smartnic; BUILD the folder that `countaction build` or `python -m fpga.smartnic build`
# has written (default: this one), IP the folder that the IP goes to (default: BUILD/ip). `axi` has the portal of
# registers, `axis` AXI-Stream ports.
#
# NOT RUN by the project's tests, which have no Vivado: they check that it is Tcl, that it runs through with
# Vivado's commands replaced by recorders, and that every file it names is there.

if {[llength $argv] < 1} {
    error "which datapath? -tclargs NAME \[axi|axis\] \[BUILD\] \[IP\]"
}
set name [lindex $argv 0]
set streams [expr {[llength $argv] > 1 ? [lindex $argv 1] : "axi"}]
set build [file normalize [expr {[llength $argv] > 2 ? [lindex $argv 2] : [file dirname [info script]]}]]
set ip [file normalize [expr {[llength $argv] > 3 ? [lindex $argv 3] : [file join $build ip]}]]
set top ${name}_${streams}
set part xczu28dr-ffvg1517-2-e

# The sources in their order, from the list next to them.
set list [open [file join $build $top.f]]
set sources [lmap line [split [string trim [read $list]] "\n"] {file join $build $line}]
close $list

create_project -in_memory -part $part
read_verilog -sv $sources
set_property top $top [current_fileset]
update_compile_order -fileset sources_1

ipx::package_project -root_dir $ip -vendor lightbed -library user -taxonomy /UserIP -import_files -force
set core [ipx::current_core]
set_property name $name $core
set_property version 1.0 $core
set_property display_name "Count-action datapath $name" $core
set_property supported_families {zynquplus Production zynquplusRFSOC Production} $core

# One clock for all buses.
set buses [list s_axi]
foreach bus [ipx::get_bus_interfaces -of_objects $core] {
    set bus [get_property NAME $bus]
    if {$bus eq "m_axi" || [string match s_axis_* $bus] || [string match m_axis_* $bus]} {
        lappend buses $bus
    }
}
foreach bus $buses {
    ipx::associate_bus_interfaces -busif $bus -clock aclk $core
}

# The registers, so that the hardware handoff has their names and pynq a register_map.
set maps [ipx::get_memory_maps s_axi -of_objects $core]
if {[llength $maps] == 0} {
    set maps [ipx::add_memory_map s_axi $core]
    set_property slave_memory_map_ref s_axi [ipx::get_bus_interfaces s_axi -of_objects $core]
}
set blocks [ipx::get_address_blocks -of_objects $maps]
if {[llength $blocks] == 0} {
    set blocks [ipx::add_address_block reg0 $maps]
}
set block [lindex $blocks 0]
set_property usage register $block
source [file join $build ${top}_ip_registers.tcl]

ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity $core
ipx::save_core $core
